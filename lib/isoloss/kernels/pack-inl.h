// Packs GEMM operands into panels and quantises them there. Included once per
// Highway target with a fused multiply-add and vectors of fixed length.
//
// A panel holds a few operand rows k-major: element (row, k) stands at
// panel[k * stride + row]. So vector lanes run over operand rows, whichever way
// the source is stored, and the largest magnitude of an MX block (32 steps of
// k) is a lane-wise maximum: one quantiser serves every operand.
#if defined(ISOLOSS_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_PACK_INL_H_
#undef ISOLOSS_KERNELS_PACK_INL_H_
#else
#define ISOLOSS_KERNELS_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<uint32_t>;
using VecF = hn::Vec<F32>;
using VecU = hn::Vec<U32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

/// Lanes [0, count) from memory, +0 in the rest; reads nothing beyond count.
HWY_INLINE VecF LoadPartial(const float* from, size_t count) {
  const F32 d;
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float lanes[kLanes] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
}

/// Writes lanes [0, count) and nothing beyond.
HWY_INLINE void StorePartial(VecF value, float* to, size_t count) {
  const F32 d;
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, d, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
#else
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#endif
}

/// Transposes the 4x4 of each 128-bit block: vector j receives in block p the
/// elements 4p + j of the four.
HWY_INLINE void TransposeInBlocks(VecF* v) {
  const F32 d;
  const hn::Repartition<uint64_t, F32> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v[0], v[1]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v[0], v[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v[2], v[3]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  v[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

/// Transposes a kLanes x kLanes tile in registers.
HWY_INLINE void Transpose(VecF (&v)[kLanes]) {
  const F32 d;
  HWY_UNROLL(4)
  for (size_t quad = 0; quad < kLanes; quad += 4) TransposeInBlocks(v + quad);
  // Vector 4q + j now has rows 4q … 4q + 3 of column 4p + j in block p; column
  // 4p + j wants that block from every quad q.
  if constexpr (kLanes == 8) {
    HWY_UNROLL(4)
    for (size_t j = 0; j < 4; ++j) {
      const VecF q0 = v[j], q1 = v[4 + j];
      v[j] = hn::ConcatLowerLower(d, q1, q0);
      v[4 + j] = hn::ConcatUpperUpper(d, q1, q0);
    }
  } else if constexpr (kLanes == 16) {
    HWY_UNROLL(4)
    for (size_t j = 0; j < 4; ++j) {
      const VecF q0 = v[j], q1 = v[4 + j], q2 = v[8 + j], q3 = v[12 + j];
      const VecF even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q1), q0);
      const VecF odd01 = hn::OddEvenBlocks(q1, hn::SwapAdjacentBlocks(q0));
      const VecF even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q3), q2);
      const VecF odd23 = hn::OddEvenBlocks(q3, hn::SwapAdjacentBlocks(q2));
      v[j] = hn::ConcatLowerLower(d, even23, even01);
      v[4 + j] = hn::ConcatLowerLower(d, odd23, odd01);
      v[8 + j] = hn::ConcatUpperUpper(d, even23, even01);
      v[12 + j] = hn::ConcatUpperUpper(d, odd23, odd01);
    }
  }
}

/// kLanes consecutive rows of an operand. Lanes beyond the operand's extent
/// repeat its last row or are +0; nobody reads the results they lead to.
class RowGroup {
 public:
  RowGroup(const Operand& operand, size_t first)
      : values_(operand.values),
        along_columns_(operand.contraction == Contraction::kColumns),
        first_(first),
        count_(std::min(kLanes, operand.extent() - first)) {}

  /// Copies k in [begin, end) to panel[(k - begin) * stride + lane].
  void Gather(size_t begin, size_t end, float* panel, size_t stride) const {
    if (along_columns_) {
      GatherTransposed(begin, end, panel, stride);
    } else {
      GatherRows(begin, end, panel, stride);
    }
  }

 private:
  HWY_INLINE void GatherRows(size_t begin, size_t end, float* panel,
                             size_t stride) const {
    const F32 d;
    const float* from = values_.data() + begin * values_.stride() + first_;
    for (size_t k = begin; k < end; ++k) {
      hn::Store(
          count_ == kLanes ? hn::LoadU(d, from) : LoadPartial(from, count_), d,
          panel);
      from += values_.stride();
      panel += stride;
    }
  }

  HWY_INLINE void GatherTransposed(size_t begin, size_t end, float* panel,
                                   size_t stride) const {
    const F32 d;
    const float* rows[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      rows[i] = values_.data() +
                (first_ + std::min(i, count_ - 1)) * values_.stride();
    }
    for (size_t k = begin; k < end; k += kLanes) {
      const size_t steps = std::min(kLanes, end - k);
      VecF v[kLanes];
      if (steps == kLanes) {
        HWY_UNROLL(16)
        for (size_t i = 0; i < kLanes; ++i) v[i] = hn::LoadU(d, rows[i] + k);
        Transpose(v);
        HWY_UNROLL(16)
        for (size_t i = 0; i < kLanes; ++i) {
          hn::Store(v[i], d, panel + i * stride);
        }
      } else {
        for (size_t i = 0; i < kLanes; ++i) {
          v[i] = LoadPartial(rows[i] + k, steps);
        }
        Transpose(v);
        for (size_t i = 0; i < steps; ++i) {
          hn::Store(v[i], d, panel + i * stride);
        }
      }
      panel += kLanes * stride;
    }
  }

  MatrixView<const float> values_;
  bool along_columns_;
  size_t first_;
  size_t count_;
};

/// Quantises and dequantises MX blocks of which every lane holds one, bit-equal
/// to formats::QuantizeDequantizeBlock.
///
/// Works at the block's own scale S = 2^(s - 127) instead of dividing by it: an
/// element x of exponent e is rounded to the quantum 2^-m * max(2^e, S * min
/// normal) by adding and subtracting 2^23 quanta (nearest, ties to even, as
/// |x| < 2^(m+1) quanta), then clamped to S * max. Nothing in it can overflow
/// or become subnormal for an amax in [2^(emax + bias + 2 - 127), 2^103), nor
/// for an amax of zero. Blocks outside, with an infinity or a NaN among them,
/// are left to the definition.
class LaneQuantizer {
 public:
  explicit LaneQuantizer(const formats::MxSpec& spec)
      : spec_(spec),
        round_up_(RoundUp(spec)),
        emax_(static_cast<uint32_t>(spec.element->emax)),
        bias_(static_cast<uint32_t>(spec.element->bias)),
        max_mantissa_(spec.element->max_mantissa_field()),
        magic_(static_cast<uint32_t>(23 - spec.element->mantissa_bits) << 23) {}

  /// block[k * stride + lane], k in [0, count), count in 1 … 32, in place.
  HWY_INLINE void Run(float* block, size_t count, size_t stride) const {
    const F32 d;
    const U32 du;
    const VecU magnitude = hn::Set(du, 0x7FFFFFFFu);
    VecU amax = hn::Zero(du);
    for (size_t k = 0; k < count; ++k) {
      const VecU bits = hn::BitCast(du, hn::Load(d, block + k * stride));
      amax = hn::Max(amax, hn::And(bits, magnitude));
    }
    if (!hn::AllFalse(du, Rare(amax))) {
      RunDefinition(block, count, stride);
      return;
    }

    // The scale byte is max(exponent - emax, 0).
    const VecU exponent =
        hn::ShiftRight<23>(hn::Add(amax, hn::Set(du, round_up_)));
    const VecU limit =
        hn::Or(hn::ShiftLeft<23>(hn::Max(exponent, hn::Set(du, emax_))),
               hn::Set(du, max_mantissa_));
    const VecU normal_from = hn::Set(du, emax_ + bias_ - 1);
    const VecU min_normal =
        hn::ShiftLeft<23>(hn::Sub(hn::Max(exponent, normal_from), normal_from));
    const VecU exponent_mask = hn::Set(du, 0x7F800000u);
    const VecU magic = hn::Set(du, magic_);
    for (size_t k = 0; k < count; ++k) {
      float* p = block + k * stride;
      const VecF value = hn::Load(d, p);
      const VecF absolute = hn::Abs(value);
      const VecU binade = hn::And(hn::BitCast(du, value), exponent_mask);
      const VecF quanta =
          hn::BitCast(d, hn::Add(hn::Max(binade, min_normal), magic));
      const VecF rounded = hn::Sub(hn::Add(absolute, quanta), quanta);
      const VecF clamped =
          hn::BitCast(d, hn::Min(hn::BitCast(du, rounded), limit));
      hn::Store(hn::CopySignToAbs(clamped, value), d, p);
    }
  }

 private:
  /// What added to the bits of amax makes its exponent field the rounded one
  /// (docs/numerics.md, section 5).
  static uint32_t RoundUp(const formats::MxSpec& spec) {
    switch (spec.scale_mode) {
      case formats::ScaleMode::kFloor:
        return 0;
      case formats::ScaleMode::kCeil:
        return 0x7FFFFF;
      case formats::ScaleMode::kEven:
        return 1u << (22 - spec.element->mantissa_bits);
      case formats::ScaleMode::kRceil:
        return 0x7FFFFF - spec.element->max_mantissa_field();
    }
    return 0;
  }

  HWY_INLINE hn::Mask<U32> Rare(VecU amax) const {
    const U32 du;
    const uint32_t low = (emax_ + bias_ + 2) << 23;
    const uint32_t high = 230u << 23;  // 2^103
    const auto outside =
        hn::Gt(hn::Sub(amax, hn::Set(du, low)), hn::Set(du, high - low - 1));
    return hn::And(outside, hn::Ne(amax, hn::Zero(du)));
  }

  HWY_NOINLINE void RunDefinition(float* block, size_t count,
                                  size_t stride) const {
    float column[formats::kMxBlockSize];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (size_t k = 0; k < count; ++k) column[k] = block[k * stride + lane];
      formats::QuantizeDequantizeBlock({column, count}, spec_, {column, count});
      for (size_t k = 0; k < count; ++k) block[k * stride + lane] = column[k];
    }
  }

  const formats::MxSpec& spec_;
  uint32_t round_up_;
  uint32_t emax_;
  uint32_t bias_;
  uint32_t max_mantissa_;
  uint32_t magic_;  // exponent field of 2^(23 - m)
};

/// Packs operand rows [first, first + count) for all k into a panel. Lanes are
/// filled in whole vectors, so `stride` is a multiple of kLanes and panel is
/// aligned.
inline void PackPanel(const Operand& operand, size_t first, size_t count,
                      std::span<const size_t> segment_ends, float* panel,
                      size_t stride) {
  for (size_t lane = 0; lane < count; lane += kLanes) {
    const RowGroup group(operand, first + lane);
    float* const to = panel + lane;
    if (operand.mx == nullptr) {
      group.Gather(0, operand.depth(), to, stride);
      continue;
    }
    const LaneQuantizer quantizer(*operand.mx);
    size_t begin = 0;
    for (const size_t end : segment_ends) {
      for (size_t k = begin; k < end; k += formats::kMxBlockSize) {
        const size_t steps = std::min(formats::kMxBlockSize, end - k);
        group.Gather(k, k + steps, to + k * stride, stride);
        quantizer.Run(to + k * stride, steps, stride);
      }
      begin = end;
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_PACK_INL_H_
