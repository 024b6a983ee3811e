// Quantises and dequantises MX blocks on vectors, bit-equal to
// formats::QuantizeDequantizeBlock. Each Highway target with a fused
// multiply-add and vectors of fixed length includes this file once.
#if defined(ISOLOSS_KERNELS_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_QUANTIZE_INL_H_
#undef ISOLOSS_KERNELS_QUANTIZE_INL_H_
#else
#define ISOLOSS_KERNELS_QUANTIZE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/rows-inl.h"
#include "isoloss/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

using U32 = hn::RebindToUnsigned<F32>;
using VecU = hn::Vec<U32>;

/// Does the arithmetic of one MX recipe: each lane holds a block, or an element
/// of a block.
///
/// Works at the block's own scale S = 2^(s - 127) instead of dividing by it. An
/// element x of exponent e is rounded to the quantum 2^-m * max(2^e, S * min
/// normal) by adding and subtracting 2^23 quanta (nearest, ties to even, as |x|
/// < 2^(m+1) quanta). It is then clamped to S * max. Nothing here can overflow
/// or become subnormal for an amax in [2^(emax + bias + 2 - 127), 2^103), nor
/// for an amax of zero. Blocks outside this range, and those with an infinity
/// or a NaN, are rare and left to the definition.
class BlockQuantizer {
 public:
  explicit BlockQuantizer(const formats::Quantization& spec)
      : spec_(spec),
        round_up_(RoundUp(spec)),
        emax_(static_cast<uint32_t>(spec.element->emax)),
        bias_(static_cast<uint32_t>(spec.element->bias)),
        max_mantissa_(spec.element->max_mantissa_field()),
        magic_(static_cast<uint32_t>(23 - spec.element->mantissa_bits) << 23) {
    ISOLOSS_ASSERT(spec.is_mx());
  }

  /// The elements of a block are clamped and rounded to these bounds.
  struct Bounds {
    VecU limit;       // bits of S * max
    VecU min_normal;  // bits of S * min normal
  };

  static HWY_INLINE VecU Magnitude(VecF value) {
    const U32 du;
    return hn::And(hn::BitCast(du, value), hn::Set(du, 0x7FFFFFFFu));
  }

  /// Tells whether some block's amax (bits of a magnitude) is rare.
  HWY_INLINE bool AnyRare(VecU amax) const {
    const U32 du;
    const uint32_t low = (emax_ + bias_ + 2) << 23;
    const uint32_t high = 230u << 23;  // 2^103
    const auto outside =
        hn::Gt(hn::Sub(amax, hn::Set(du, low)), hn::Set(du, high - low - 1));
    return !hn::AllFalse(du, hn::And(outside, hn::Ne(amax, hn::Zero(du))));
  }

  HWY_INLINE Bounds BoundsOf(VecU amax) const {
    const U32 du;
    // The scale byte is max(exponent - emax, 0).
    const VecU exponent =
        hn::ShiftRight<23>(hn::Add(amax, hn::Set(du, round_up_)));
    const VecU normal_from = hn::Set(du, emax_ + bias_ - 1);
    return {hn::Or(hn::ShiftLeft<23>(hn::Max(exponent, hn::Set(du, emax_))),
                   hn::Set(du, max_mantissa_)),
            hn::ShiftLeft<23>(
                hn::Sub(hn::Max(exponent, normal_from), normal_from))};
  }

  HWY_INLINE VecF Apply(VecF value, const Bounds& bounds) const {
    const F32 d;
    const U32 du;
    const VecU binade =
        hn::And(hn::BitCast(du, value), hn::Set(du, 0x7F800000u));
    const VecF quanta = hn::BitCast(
        d, hn::Add(hn::Max(binade, bounds.min_normal), hn::Set(du, magic_)));
    const VecF rounded = hn::Sub(hn::Add(hn::Abs(value), quanta), quanta);
    const VecF clamped =
        hn::BitCast(d, hn::Min(hn::BitCast(du, rounded), bounds.limit));
    return hn::CopySignToAbs(clamped, value);
  }

  /// Applies the definition to a block whose elements lie `stride` apart.
  void ApplyDefinition(const float* from, size_t from_stride, size_t count,
                       float* to, size_t to_stride) const {
    float block[formats::kMxBlockSize];
    for (size_t k = 0; k < count; ++k) block[k] = from[k * from_stride];
    formats::QuantizeDequantizeBlock({block, count}, spec_, {block, count});
    for (size_t k = 0; k < count; ++k) to[k * to_stride] = block[k];
  }

 private:
  /// Added to the bits of amax, this makes its exponent field the rounded one
  /// (docs/numerics.md, section 5).
  static uint32_t RoundUp(const formats::Quantization& spec) {
    switch (spec.scale_rule) {
      case formats::ScaleRule::kFloor:
        return 0;
      case formats::ScaleRule::kCeil:
        return 0x7FFFFF;
      case formats::ScaleRule::kEven:
        return 1u << (22 - spec.element->mantissa_bits);
      case formats::ScaleRule::kRceil:
        return 0x7FFFFF - spec.element->max_mantissa_field();
      default:
        return 0;  // is_mx() says that there are no others
    }
  }

  const formats::Quantization& spec_;
  uint32_t round_up_;
  uint32_t emax_;
  uint32_t bias_;
  uint32_t max_mantissa_;
  uint32_t magic_;  // exponent field of 2^(23 - m)
};

/// Implements QuantizeBlocksDown. kWhole means that `columns` are whole
/// vectors.
template <size_t kVectors, bool kWhole>
HWY_INLINE void QuantizeVectorsDown(const BlockQuantizer& quantizer,
                                    const float* from, size_t from_stride,
                                    size_t columns, size_t count, float* to,
                                    size_t to_stride) {
  const F32 d;
  const U32 du;
  size_t lanes[kVectors];
  VecU amax[kVectors];
  HWY_UNROLL(4)
  for (size_t v = 0; v < kVectors; ++v) {
    lanes[v] = kWhole
                   ? kLanes
                   : std::min(kLanes, columns - std::min(columns, v * kLanes));
    amax[v] = hn::Zero(du);
  }
  for (size_t k = 0; k < count; ++k) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      const float* const at = from + k * from_stride + v * kLanes;
      // The next block needs a prefetch, because the processor does not fetch
      // rows far apart by itself.
      hwy::Prefetch(at + formats::kMxBlockSize * from_stride);
      const VecF value = LoadFirst(d, at, lanes[v]);
      amax[v] = hn::Max(amax[v], BlockQuantizer::Magnitude(value));
    }
  }
  for (size_t v = 0; v < kVectors && lanes[v] > 0; ++v) {
    const float* from_lanes = from + v * kLanes;
    float* to_lanes = to + v * kLanes;
    if (HWY_UNLIKELY(quantizer.AnyRare(amax[v]))) {
      for (size_t lane = 0; lane < lanes[v]; ++lane) {
        quantizer.ApplyDefinition(from_lanes + lane, from_stride, count,
                                  to_lanes + lane, to_stride);
      }
      continue;
    }
    const auto bounds = quantizer.BoundsOf(amax[v]);
    for (size_t k = 0; k < count; ++k) {
      const VecF value = LoadFirst(d, from_lanes + k * from_stride, lanes[v]);
      hn::StoreU(quantizer.Apply(value, bounds), d, to_lanes + k * to_stride);
    }
  }
}

/// Quantises blocks that run down columns, one per lane: element k of column i
/// at from[k * from_stride + i] goes to to[k * to_stride + i]. There are
/// `count` steps, at most one block, and `columns` are at most kVectors
/// vectors. Writes the vectors that have a column, whole. `to` may be `from`.
template <size_t kVectors>
HWY_INLINE void QuantizeBlocksDown(const BlockQuantizer& quantizer,
                                   const float* from, size_t from_stride,
                                   size_t columns, size_t count, float* to,
                                   size_t to_stride) {
  if (HWY_LIKELY(columns == kVectors * kLanes)) {
    QuantizeVectorsDown<kVectors, true>(quantizer, from, from_stride, columns,
                                        count, to, to_stride);
  } else {
    QuantizeVectorsDown<kVectors, false>(quantizer, from, from_stride, columns,
                                         count, to, to_stride);
  }
}

/// Quantises blocks along rows, kLanes of them at a time, so that their scales
/// are computed in one vector.
class RowBlocks {
 public:
  /// `stream` means that whole blocks are written around the caches; then every
  /// `to` must be aligned to vectors.
  explicit RowBlocks(const formats::Quantization& spec, bool stream = false)
      : quantizer_(spec), stream_(stream) {}

  /// Quantises [from, from + count), at most one block, into `to`, now or at
  /// the next Flush; both must stay until then. They may be the same.
  HWY_INLINE void Add(const float* from, size_t count, float* to) {
    blocks_[size_] = {from, count, to};
    all_whole_ = all_whole_ && count == formats::kMxBlockSize;
    if (++size_ == kLanes) Flush();
  }

  HWY_INLINE void Flush() {
    if (HWY_LIKELY(size_ == kLanes && all_whole_)) {
      QuantizeAll<true>();
    } else {
      QuantizeAll<false>();
    }
    size_ = 0;
    all_whole_ = true;
  }

 private:
  struct Block {
    const float* from;
    size_t count;
    float* to;
  };

  template <bool kWhole, class Visit>
  static HWY_INLINE void ForEachVectorOf(const Block& block,
                                         const Visit& visit) {
    if constexpr (kWhole) {
      HWY_UNROLL(2)
      for (size_t k = 0; k < formats::kMxBlockSize; k += kLanes) {
        visit(k, kLanes);
      }
    } else {
      ForEachVector(F32(), block.count, visit);
    }
  }

  template <bool kWhole>
  HWY_NOINLINE void QuantizeAll() {
    const VecU amax = Maxima<kWhole>();
    if (HWY_UNLIKELY(quantizer_.AnyRare(amax))) {
      for (size_t b = 0; b < size_; ++b) {
        const Block& block = blocks_[b];
        quantizer_.ApplyDefinition(block.from, 1, block.count, block.to, 1);
      }
    } else {
      const auto bounds = quantizer_.BoundsOf(amax);
      if (kWhole && stream_) {
        Apply<kWhole>(bounds, [](VecF value, float* to, size_t)
                                  HWY_ATTR { hn::Stream(value, F32(), to); });
      } else {
        Apply<kWhole>(bounds, [](VecF value, float* to, size_t n) HWY_ATTR {
          StoreFirst(F32(), value, to, n);
        });
      }
    }
  }

  /// Returns the amax of block b in lane b.
  template <bool kWhole>
  HWY_INLINE VecU Maxima() const {
    constexpr size_t kAhead = 1024;  // floats
    const F32 d;
    const U32 du;
    VecU maxima[kLanes];
    for (size_t b = 0; b < kLanes; ++b) {
      maxima[b] = hn::Zero(du);
      if (kWhole || b < size_) {
        const float* const from = blocks_[b].from;
        ForEachVectorOf<kWhole>(blocks_[b], [&](size_t k, size_t n) HWY_ATTR {
          hwy::Prefetch(from + k + kAhead);
          maxima[b] = hn::Max(
              maxima[b], BlockQuantizer::Magnitude(LoadFirst(d, from + k, n)));
        });
      }
    }
    return FoldEach(maxima,
                    [](VecU x, VecU y) HWY_ATTR { return hn::Max(x, y); });
  }

  template <bool kWhole, class Store>
  HWY_INLINE void Apply(const BlockQuantizer::Bounds& of_blocks,
                        const Store& store) {
    const F32 d;
    const U32 du;
    const BlockQuantizer quantizer = quantizer_;  // kept in registers
    HWY_ALIGN uint32_t limits[kLanes];
    HWY_ALIGN uint32_t min_normals[kLanes];
    hn::Store(of_blocks.limit, du, limits);
    hn::Store(of_blocks.min_normal, du, min_normals);
    for (size_t b = 0; b < size_; ++b) {
      const BlockQuantizer::Bounds bounds = {hn::Set(du, limits[b]),
                                             hn::Set(du, min_normals[b])};
      const Block block = blocks_[b];
      ForEachVectorOf<kWhole>(block, [&](size_t k, size_t n) HWY_ATTR {
        const VecF value = LoadFirst(d, block.from + k, n);
        store(quantizer.Apply(value, bounds), block.to + k, n);
      });
    }
  }

  BlockQuantizer quantizer_;
  bool stream_;
  Block blocks_[kLanes];
  size_t size_ = 0;
  bool all_whole_ = true;
};

/// Calls body(k, steps) for the MX blocks of each segment.
template <class Body>
HWY_INLINE void ForEachMxBlock(std::span<const size_t> segment_ends,
                               const Body& body) {
  size_t k = 0;
  for (const size_t end : segment_ends) {
    for (; k < end; k = std::min(k + formats::kMxBlockSize, end)) {
      body(k, std::min(formats::kMxBlockSize, end - k));
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_QUANTIZE_INL_H_
