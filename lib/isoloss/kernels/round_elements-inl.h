// Rounds elements to the grid of a small format under a given scale, draws
// random bits for that, and transposes. Each Highway target with vectors of
// fixed length includes this file once.
#if defined(ISOLOSS_KERNELS_ROUND_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_ROUND_ELEMENTS_INL_H_
#undef ISOLOSS_KERNELS_ROUND_ELEMENTS_INL_H_
#else
#define ISOLOSS_KERNELS_ROUND_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/rows-inl.h"
#include "isoloss/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

using U32 = hn::RebindToUnsigned<F32>;
using VecU = hn::Vec<U32>;

/// Works in units of an element's own quantum, a power of two, so that all
/// operations before the last rounding are exact.
class ElementRounder {
 public:
  using Mode = formats::RoundingMode;

  /// Accepts formats whose quanta and their reciprocals are normal FP32
  /// numbers.
  static bool Takes(const formats::Quantization& quantization) {
    return quantization.element->exponent_bits <= 5;
  }

  explicit ElementRounder(const formats::Quantization& quantization)
      : mode_(quantization.rounding),
        bits_(quantization.random_bits),
        scales_sums_(quantization.scales_sums()),
        mantissa_bits_(
            static_cast<uint32_t>(quantization.element->mantissa_bits)),
        least_binade_(static_cast<uint32_t>(128 - quantization.element->bias)
                      << 23),
        largest_(formats::MaxFinite(*quantization.element)),
        beyond_(quantization.scale_format == formats::ScaleFormat::kNone &&
                        quantization.element->has_infinity
                    ? std::numeric_limits<float>::infinity()
                    : largest_),
        has_sign_of_zero_(!quantization.element->twos_complement) {}

  /// Makes row[k] the value of its code, times the scale of its cell unless
  /// scales multiply sums. Cells with a scale that is NaN are left alone.
  /// `random` has 16 bits for each element; it is null if the mode reads none.
  void Apply(const formats::Scale* scales, size_t of_cell,
             const uint16_t* random, size_t count, float* row) const {
    switch (mode_) {
      case Mode::kNearestEven:
        return ApplyAs<Mode::kNearestEven>(scales, of_cell, random, count, row);
      case Mode::kHalfAway:
        return ApplyAs<Mode::kHalfAway>(scales, of_cell, random, count, row);
      case Mode::kTowardZero:
        return ApplyAs<Mode::kTowardZero>(scales, of_cell, random, count, row);
      case Mode::kStochastic:
        return ApplyAs<Mode::kStochastic>(scales, of_cell, random, count, row);
    }
  }

 private:
  template <Mode kMode>
  HWY_INLINE void ApplyAs(const formats::Scale* scales, size_t of_cell,
                          const uint16_t* random, size_t count,
                          float* row) const {
    const F32 d;
    const ElementRounder rounder = *this;  // kept in registers
    for (size_t first = 0; first < count; first += of_cell, ++scales) {
      if (scales->encode != scales->encode) continue;
      const VecF encode = hn::Set(d, scales->encode);
      const VecF decode = hn::Set(d, rounder.scales_sums_ ? 1 : scales->decode);
      float* const cell = row + first;
      ForEachVector(d, std::min(of_cell, count - first),
                    [&](size_t k, size_t n) HWY_ATTR {
                      const VecF y = hn::Mul(LoadFirst(d, cell + k, n), encode);
                      VecF draw = hn::Zero(d);
                      if constexpr (kMode == Mode::kStochastic) {
                        draw = rounder.Draw(random + first + k, n);
                      }
                      const VecF element = rounder.Rounded<kMode>(y, draw);
                      StoreFirst(d, hn::Mul(element, decode), cell + k, n);
                    });
    }
  }

  /// Converts the upper bits_ of 16 random bits to numbers.
  HWY_INLINE VecF Draw(const uint16_t* random, size_t n) const {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const hn::Rebind<uint16_t, F32> d16;
    const auto halves =
        hn::PromoteTo(hn::RebindToUnsigned<F32>(), LoadFirst(d16, random, n));
    return hn::ConvertTo(
        d, hn::BitCast(di, hn::ShiftRightSame(halves, 16 - bits_)));
  }

  template <Mode kMode>
  HWY_INLINE VecF Rounded(VecF y, VecF draw) const {
    const F32 d;
    const U32 du;
    // All magnitudes from twice the largest on saturate alike.
    const VecF magnitude = hn::Min(hn::Abs(y), hn::Set(d, 2 * largest_));
    const VecU binade =
        hn::Max(hn::And(hn::BitCast(du, magnitude), hn::Set(du, 0x7F800000u)),
                hn::Set(du, least_binade_));
    const VecU quantum = hn::Sub(binade, hn::Set(du, mantissa_bits_ << 23));
    const VecU reciprocal = hn::Sub(hn::Set(du, 254u << 23), quantum);
    const VecF units = hn::Mul(magnitude, hn::BitCast(d, reciprocal));
    const VecF below = hn::Floor(units);
    const VecF one = hn::Set(d, 1.0f);
    VecF rounded = below;
    if constexpr (kMode == Mode::kNearestEven) {
      rounded = hn::Round(units);
    } else if constexpr (kMode == Mode::kHalfAway) {
      const auto up = hn::Ge(hn::Sub(units, below), hn::Set(d, 0.5f));
      rounded = hn::Add(below, hn::IfThenElseZero(up, one));
    } else if constexpr (kMode == Mode::kStochastic) {
      const VecF all = hn::Set(d, static_cast<float>(1 << bits_));
      const VecF dropped = hn::Floor(hn::Mul(hn::Sub(units, below), all));
      const auto up = hn::Ge(hn::Add(dropped, draw), all);
      rounded = hn::Add(below, hn::IfThenElseZero(up, one));
    }
    VecF result = hn::Mul(rounded, hn::BitCast(d, quantum));
    result = hn::IfThenElse(hn::Gt(result, hn::Set(d, largest_)),
                            hn::Set(d, beyond_), result);
    result = hn::CopySignToAbs(result, y);
    if (!has_sign_of_zero_) result = hn::Add(result, hn::Zero(d));
    return result;
  }

  Mode mode_;
  int bits_;
  bool scales_sums_;
  uint32_t mantissa_bits_;
  uint32_t least_binade_;  // exponent field of the smallest normal
  float largest_;
  float beyond_;  // what is beyond it
  bool has_sign_of_zero_;
};

/// Computes the upper and lower halves of the 64-bit products with a constant.
HWY_INLINE void MulWide(VecU a, uint32_t constant, VecU* high, VecU* low) {
  const U32 du;
  const hn::Repartition<uint64_t, U32> du64;
  const VecU b = hn::Set(du, constant);
  const auto even = hn::MulEven(a, b);
  const auto odd =
      hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(du64, a))), b);
  *high = hn::OddEven(hn::BitCast(du, odd),
                      hn::BitCast(du, hn::ShiftRight<32>(even)));
  *low = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)),
                     hn::BitCast(du, even));
}

/// Draws Philox4x32-10 of counters (row << 32 | 0, 1, …, stream): 8 numbers of
/// 16 bits a block, in the order of formats::RandomBitsOf. Writes whole vectors
/// of blocks, which is up to 8 * kLanes numbers beyond `count`.
inline void PhiloxRow(uint64_t seed, uint64_t stream, size_t row, size_t count,
                      uint16_t* random) {
  constexpr size_t kNumbers = 8;
  const U32 du;
  for (size_t first = 0; first < count; first += kNumbers * kLanes) {
    const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    VecU counter[4] = {hn::Iota(du, static_cast<uint32_t>(first / kNumbers)),
                       hn::Set(du, low(row)), hn::Set(du, low(stream)),
                       hn::Set(du, low(stream >> 32))};
    uint32_t key[2] = {low(seed), low(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
      VecU high0, low0, high1, low1;
      MulWide(counter[0], 0xD2511F53u, &high0, &low0);
      MulWide(counter[2], 0xCD9E8D57u, &high1, &low1);
      counter[0] = hn::Xor(hn::Xor(high1, counter[1]), hn::Set(du, key[0]));
      counter[2] = hn::Xor(hn::Xor(high0, counter[3]), hn::Set(du, key[1]));
      counter[1] = low1;
      counter[3] = low0;
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    // The words of block 4p + j become part p of vector j.
    VecF words[4];
    for (size_t w = 0; w < 4; ++w) words[w] = hn::BitCast(F32(), counter[w]);
    TransposeInBlocks(words);
    constexpr size_t kPart = 4;
    HWY_ALIGN float parts[kLanes];
    for (size_t j = 0; j < 4; ++j) {
      hn::Store(words[j], F32(), parts);
      for (size_t p = 0; p < kLanes / kPart; ++p) {
        // Each word holds two numbers, the lower half first, as memory has
        // them.
        std::memcpy(random + first + (kPart * p + j) * kNumbers,
                    parts + p * kPart, kPart * sizeof(float));
      }
    }
  }
}

/// Replaces x[i] and x[i + kApart] by their sum and difference.
template <size_t kApart>
HWY_INLINE void HadamardStage(VecF (&x)[formats::kHadamardLength]) {
  HWY_UNROLL(16)
  for (size_t i = 0; i < formats::kHadamardLength; ++i) {
    if ((i & kApart) != 0) continue;
    const VecF a = x[i];
    const VecF b = x[i + kApart];
    x[i] = hn::Add(a, b);
    x[i + kApart] = hn::Sub(a, b);
  }
}

/// Computes formats::Hadamard16 of all runs of a row, kLanes of them at a time,
/// with one run in each lane.
inline void HadamardRow(uint32_t negative, size_t count, float* row) {
  constexpr size_t kLength = formats::kHadamardLength;
  constexpr size_t kParts = kLength / kLanes;  // vectors of a run
  const F32 d;
  const U32 du;
  size_t first = 0;
  for (; first + kLength * kLanes <= count; first += kLength * kLanes) {
    VecF x[kLength];
    for (size_t part = 0; part < kParts; ++part) {
      VecF v[kLanes];
      for (size_t run = 0; run < kLanes; ++run) {
        v[run] = hn::LoadU(d, row + first + run * kLength + part * kLanes);
      }
      Transpose(v);
      for (size_t i = 0; i < kLanes; ++i) x[part * kLanes + i] = v[i];
    }
    for (size_t i = 0; i < kLength; ++i) {
      const VecU sign = hn::Set(du, (negative >> i & 1) << 31);
      x[i] = hn::BitCast(d, hn::Xor(hn::BitCast(du, x[i]), sign));
    }
    HadamardStage<1>(x);
    HadamardStage<2>(x);
    HadamardStage<4>(x);
    HadamardStage<8>(x);
    for (size_t part = 0; part < kParts; ++part) {
      VecF v[kLanes];
      for (size_t i = 0; i < kLanes; ++i) {
        v[i] = hn::Mul(x[part * kLanes + i], hn::Set(d, 0.25f));
      }
      Transpose(v);
      for (size_t run = 0; run < kLanes; ++run) {
        hn::StoreU(v[run], d, row + first + run * kLength + part * kLanes);
      }
    }
  }
  for (; first < count; first += kLength) {
    formats::Hadamard16({row + first, kLength}, negative);
  }
}

/// Transposes `from` into `to`, tile by tile.
inline void TransposeTiles(MatrixView<const float> from, MatrixView<float> to) {
  const F32 d;
  for (size_t i = 0; i < from.rows(); i += kLanes) {
    const size_t rows = std::min(kLanes, from.rows() - i);
    for (size_t j = 0; j < from.cols(); j += kLanes) {
      const size_t cols = std::min(kLanes, from.cols() - j);
      VecF v[kLanes];
      for (size_t r = 0; r < kLanes; ++r) {
        v[r] = r < rows ? LoadFirst(d, from.Row(i + r) + j, cols) : hn::Zero(d);
      }
      Transpose(v);
      for (size_t c = 0; c < cols; ++c) {
        StoreFirst(d, v[c], to.Row(j + c) + i, rows);
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_ROUND_ELEMENTS_INL_H_
