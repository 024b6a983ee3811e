// Packs operands of an accumulator and computes strips of products. Each
// Highway target with vectors of fixed length includes this file once.
#if defined(ISOLOSS_KERNELS_FUSED_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_FUSED_STRIP_INL_H_
#undef ISOLOSS_KERNELS_FUSED_STRIP_INL_H_
#else
#define ISOLOSS_KERNELS_FUSED_STRIP_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/fused_gemm.h"
#include "isoloss/kernels/fused_tile-inl.h"
#include "isoloss/kernels/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// A vector of factors as they are packed.
struct PackedFactors {
  VecF values;
  VecI32 exponents;
};

/// Returns `exponents` plus `bias`, or kUnfitExponent where a factor does not
/// fit its exponent.
HWY_INLINE VecI32 FitExponents(VecF values, VecI32 exponents, int32_t bias) {
  const I32 d32;
  constexpr int32_t kInfinity = 0x7F800000;
  constexpr int32_t kBeyond12Bits = 0xFFF;
  const VecI32 magnitude = hn::BitCast(d32, hn::Abs(values));
  const auto zero = hn::Eq(magnitude, hn::Zero(d32));
  const auto narrow =
      hn::Eq(hn::And(magnitude, hn::Set(d32, kBeyond12Bits)), hn::Zero(d32));
  // The bits of 2^(e + 1), or less; FP32 has no larger one than 2^127.
  const VecI32 bound = hn::ShiftLeft<23>(
      hn::Max(hn::Min(hn::Add(exponents, hn::Set(d32, kExponentBias + 1)),
                      hn::Set(d32, kInfinity >> 23)),
              hn::Zero(d32)));
  const auto fits = hn::Or(zero, hn::And(narrow, hn::Lt(magnitude, bound)));
  return hn::IfThenElse(fits, hn::Add(exponents, hn::Set(d32, bias)),
                        hn::Set(d32, kUnfitExponent));
}

/// Reads kLanes factors. Null exponents mean those of the values in BF16.
HWY_INLINE PackedFactors PackFactors(const Elements& from, int32_t bias) {
  const F32 d;
  const I32 d32;
  VecF values = hn::LoadU(d, from.values);
  if (from.exponents != nullptr) {
    const hn::Rebind<int16_t, I32> d16;
    const VecI32 exponents = hn::PromoteTo(d32, hn::LoadU(d16, from.exponents));
    return {values, FitExponents(values, exponents, bias)};
  }
  values = RoundToBf16(d, values);
  const VecI32 field = hn::ShiftRight<23>(hn::BitCast(d32, hn::Abs(values)));
  const VecI32 exponents =
      hn::Sub(hn::Max(field, hn::Set(d32, 1)), hn::Set(d32, kExponentBias));
  return {values, FitExponents(values, exponents, bias)};
}

/// Reads n <= kLanes factors, followed by zeros.
HWY_INLINE PackedFactors PackFirst(const Elements& from, size_t n,
                                   int32_t bias) {
  if (HWY_LIKELY(n == kLanes)) return PackFactors(from, bias);
  float values[kLanes] = {};
  int16_t exponents[kLanes] = {};
  std::memcpy(values, from.values, n * sizeof(float));
  if (from.exponents == nullptr) return PackFactors({values, nullptr}, bias);
  std::memcpy(exponents, from.exponents, n * sizeof(int16_t));
  return PackFactors({values, exponents}, bias);
}

/// Packs two exponents into the halves of each lane.
HWY_INLINE VecI32 Pair(VecI32 lower, VecI32 upper) {
  return hn::Or(hn::And(lower, hn::Set(I32(), 0xFFFF)),
                hn::ShiftLeft<16>(upper));
}

/// Packs a panel of b. Lanes beyond its last row repeat it; nobody reads their
/// sums.
inline void PackRight(size_t panel, PreparedOperand& b) {
  const F32 d;
  const I32 d32;
  const size_t depth = b.values.cols();
  const auto pack = [&](size_t lane, size_t k) HWY_ATTR {
    const size_t row =
        std::min(panel * kPanelLanes + lane, b.values.rows() - 1);
    return PackFirst(b.From(row, k), std::min(kLanes, depth - k),
                     kExponentBias);
  };
  for (size_t k = 0; k < depth; k += kLanes) {
    VecF first[kLanes];
    VecF second[kLanes];
    VecF pairs[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      const PackedFactors lower = pack(i, k);
      const PackedFactors upper = pack(kLanes + i, k);
      first[i] = lower.values;
      second[i] = upper.values;
      pairs[i] = hn::BitCast(d, Pair(lower.exponents, upper.exponents));
    }
    Transpose(first);
    Transpose(second);
    Transpose(pairs);
    for (size_t i = 0; i < std::min(kLanes, depth - k); ++i) {
      float* const values = b.panel_values.Row(panel) + (k + i) * kPanelLanes;
      hn::StoreU(first[i], d, values);
      hn::StoreU(second[i], d, values + kLanes);
      hn::StoreU(hn::BitCast(d32, pairs[i]), d32,
                 b.panel_exponents.Row(panel) + (k + i) * kLanes);
    }
  }
}

/// Computes strips of rows on one thread, and holds its scratch memory.
class FusedStrip {
 public:
  void Compute(const FusedProduct& product, Matrix<float>& sums) {
    const FusedAdder adder(product.accumulator);
    std::fill_n(sums.data(), sums.size(), 0.0f);
    const size_t steps = product.accumulator.steps;
    const size_t block = kFusedBlock / steps * steps;
    for (size_t k = product.begin; k < product.end; k += block) {
      first_step_ = k;
      steps_ = std::min(block, product.end - k);
      PackLeft(product, sums.rows());
      for (size_t j = 0; j < sums.cols(); j += kPanelLanes) {
        size_t i = 0;
        for (; i + kFusedRows <= sums.rows(); i += kFusedRows) {
          ComputeTile<kFusedRows>(product, adder, i, j, sums);
        }
        for (; i < sums.rows(); ++i) {
          ComputeTile<1>(product, adder, i, j, sums);
        }
      }
    }
  }

 private:
  void PackLeft(const FusedProduct& product, size_t rows) {
    const F32 d;
    const I32 d32;
    left_values_.ResizeUninitialized(rows, kFusedBlock);
    left_exponents_.ResizeUninitialized(rows, kFusedBlock);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t k = 0; k < steps_; k += kLanes) {
        const PackedFactors factors =
            PackFirst(product.a.From(product.first + i, first_step_ + k),
                      std::min(kLanes, steps_ - k), 0);
        hn::StoreU(factors.values, d, left_values_.Row(i) + k);
        hn::StoreU(Pair(factors.exponents, factors.exponents), d32,
                   left_exponents_.Row(i) + k);
      }
    }
  }

  template <size_t kRows>
  void ComputeTile(const FusedProduct& product, const FusedAdder& adder,
                   size_t i, size_t j, Matrix<float>& sums) {
    HWY_ALIGN float tiles[2][kRows * kPanelLanes];
    float* old_sums = tiles[0];
    float* new_sums = tiles[1];
    const size_t columns = std::min(kPanelLanes, sums.cols() - j);
    for (size_t r = 0; r < kRows; ++r) {
      std::fill_n(old_sums + r * kPanelLanes, kPanelLanes, 0.0f);
      std::copy_n(sums.Row(i + r) + j, columns, old_sums + r * kPanelLanes);
    }
    for (size_t k = 0; k < steps_; k += product.accumulator.steps) {
      const FusedLeft a = {left_values_.Row(i) + k, left_exponents_.Row(i) + k};
      const size_t step = first_step_ + k;
      const size_t panel = j / kPanelLanes;
      const FusedRight b = {
          product.b.panel_values.Row(panel) + step * kPanelLanes,
          product.b.panel_exponents.Row(panel) + step * kLanes};
      const size_t count = std::min(product.accumulator.steps, steps_ - k);
      FusedTile<kRows, VecI32> scales;
      const RareElements rare =
          AddProducts<kRows>(adder, a, b, count, old_sums, new_sums, scales);
      if (HWY_UNLIKELY(rare != RareElements::kNone)) {
        DefineRare<kRows>(adder, a, b, count, old_sums, scales, rare,
                          [&](size_t r, size_t lane) {
                            if (lane >= columns) return;
                            const size_t at = r * kPanelLanes + lane;
                            new_sums[at] = product.Add(
                                old_sums[at], i + r, j + lane, first_step_ + k);
                          });
      }
      std::swap(old_sums, new_sums);
    }
    for (size_t r = 0; r < kRows; ++r) {
      std::copy_n(old_sums + r * kPanelLanes, columns, sums.Row(i + r) + j);
    }
  }

  size_t first_step_ = 0;  // of the block
  size_t steps_ = 0;       // of it
  Matrix<float> left_values_;
  Matrix<int32_t> left_exponents_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_FUSED_STRIP_INL_H_
