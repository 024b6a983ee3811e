#include "isoloss/kernels/statistics.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/scalar/statistics.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/statistics.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/quantize-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::ErrorsOf;
using scalar::MomentsOf;
using scalar::QuantizeDequantizeDown;
using scalar::TallyBlocksAlong;
using scalar::TallyBlocksDown;

#else
// No other target or file shares these definitions.
namespace {

constexpr uint32_t kMagnitudeBits = 0x7FFFFFFF;
constexpr uint32_t kInfinityBits = 0x7F800000;

using Wide = LaneTag<double>;
using Narrow = hn::Rebind<float, Wide>;
using NarrowInt = hn::RebindToSigned<Narrow>;
using NarrowWord = hn::RebindToUnsigned<Narrow>;
using Doubles = hn::Vec<Wide>;
using Floats = hn::Vec<Narrow>;
using FloatMask = hn::Mask<Narrow>;

/// This number of vectors of doubles holds the logical lanes.
constexpr size_t kWideLanes = hn::MaxLanes(Wide());
constexpr size_t kVectors = kLogicalLanes / kWideLanes;

/// Calls body(i, n) for the groups of 16 elements [i, i + n) of [0, count);
/// only the last can be shorter.
template <class Body>
HWY_INLINE void ForEachGroup(size_t count, const Body& body) {
  size_t i = 0;
  for (; i + kLogicalLanes <= count; i += kLogicalLanes) body(i, kLogicalLanes);
  if (i < count) body(i, count - i);
}

/// Holds a group of 16 elements, which are NaN after the first n.
class Group {
 public:
  HWY_INLINE Group(const float* from, size_t n) : from_(from) {
    if (HWY_LIKELY(n == kLogicalLanes)) return;
    const uint32_t nan = 0x7FC00000;
    std::fill_n(padded_, kLogicalLanes, std::bit_cast<float>(nan));
    std::memcpy(padded_, from, n * sizeof(float));
    from_ = padded_;
  }
  HWY_INLINE Floats Vector(size_t v) const {
    return hn::LoadU(Narrow(), from_ + v * kWideLanes);
  }

 private:
  float padded_[kLogicalLanes];
  const float* from_;
};

HWY_INLINE FloatMask FiniteLanes(Floats x) {
  const NarrowInt di;
  const auto magnitude =
      hn::And(hn::BitCast(di, x), hn::Set(di, int32_t{kMagnitudeBits}));
  return hn::RebindMask(Narrow(),
                        hn::Lt(magnitude, hn::Set(di, int32_t{kInfinityBits})));
}

/// Counts in lanes how often a condition was true.
class Counter {
 public:
  HWY_INLINE Counter() : count_(hn::Zero(NarrowInt())) {}
  HWY_INLINE void Add(FloatMask mask) {
    const NarrowInt di;
    count_ = hn::Sub(count_, hn::BitCast(di, hn::VecFromMask(Narrow(), mask)));
  }
  HWY_INLINE int64_t Total() const {
    return hn::GetLane(hn::SumOfLanes(NarrowInt(), count_));
  }

 private:
  hn::Vec<NarrowInt> count_;
};

struct PlainLanes {
  Doubles sum[kVectors];

  HWY_INLINE PlainLanes() {
    for (auto& vector : sum) vector = hn::Zero(Wide());
  }
  HWY_INLINE double Fold() {
    for (size_t apart = kVectors / 2; apart > 0; apart /= 2) {
      for (size_t v = 0; v < apart; ++v) {
        sum[v] = hn::Add(sum[v], sum[v + apart]);
      }
    }
    return FoldLanes(Wide(), sum[0]);
  }
};

/// Adds to high + low, compensated.
template <class V>
HWY_INLINE void AddTo(V& high, V& low, V term) {
  const V sum = hn::Add(high, term);
  const V of_term = hn::Sub(sum, high);
  const V lost =
      hn::Add(hn::Sub(high, hn::Sub(sum, of_term)), hn::Sub(term, of_term));
  high = sum;
  low = hn::Add(low, lost);
}

/// Folds the lanes of compensated sums, as FoldLanes does.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE CompensatedSum FoldHighLow(D /*d*/, V high, V low) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return {hn::GetLane(high), hn::GetLane(low)};
  } else {
    const hn::Half<D> half;
    auto lower_high = hn::LowerHalf(half, high);
    auto lower_low = hn::LowerHalf(half, low);
    AddTo(lower_high, lower_low, hn::UpperHalf(half, high));
    lower_low = hn::Add(lower_low, hn::UpperHalf(half, low));
    return FoldHighLow(half, lower_high, lower_low);
  }
}

struct CompensatedLanes {
  Doubles high[kVectors];
  Doubles low[kVectors];

  HWY_INLINE CompensatedLanes() {
    for (size_t v = 0; v < kVectors; ++v) high[v] = low[v] = hn::Zero(Wide());
  }
  HWY_INLINE void Add(size_t v, Doubles term) { AddTo(high[v], low[v], term); }
  HWY_INLINE CompensatedSum Fold() {
    for (size_t apart = kVectors / 2; apart > 0; apart /= 2) {
      for (size_t v = 0; v < apart; ++v) {
        Add(v, high[v + apart]);
        low[v] = hn::Add(low[v], low[v + apart]);
      }
    }
    return FoldHighLow(Wide(), high[0], low[0]);
  }
};

/// Returns the smallest magnitude from its word less 1: zero has become the
/// largest word.
HWY_INLINE float SmallestFromWord(uint32_t less_one) {
  const uint32_t bits = less_one + 1;
  return std::bit_cast<float>(bits == 0 ? kInfinityBits
                                        : std::min(bits, kInfinityBits));
}

/// Returns the place of the first element that equals `value`, which is among
/// them.
template <size_t kCount>
HWY_INLINE size_t FirstEqual(const VecU* vectors, uint32_t value) {
  const U32 du;
  for (size_t v = 0; v < kCount; ++v) {
    const auto equal = hn::Eq(vectors[v], hn::Set(du, value));
    const intptr_t first = hn::FindFirstTrue(du, equal);
    if (first >= 0) return v * kLanes + static_cast<size_t>(first);
  }
  return 0;
}

}  // namespace

Moments MomentsOf(std::span<const float> run) {
  const Wide d;
  const Narrow df;
  const NarrowWord du;
  const auto inf = hn::Set(df, std::numeric_limits<float>::infinity());
  CompensatedLanes sum;
  CompensatedLanes squares;
  PlainLanes magnitudes;
  Counter finite_count;
  Counter zero_count;
  Floats min = inf;
  Floats max = hn::Neg(inf);
  auto smallest = hn::Set(du, ~0u);
  ForEachGroup(run.size(), [&](size_t i, size_t n) HWY_ATTR {
    const Group group(run.data() + i, n);
    HWY_UNROLL(8)
    for (size_t v = 0; v < kVectors; ++v) {
      const Floats x = group.Vector(v);
      const FloatMask finite = FiniteLanes(x);
      finite_count.Add(finite);
      zero_count.Add(hn::Eq(x, hn::Zero(df)));
      min = hn::Min(min, hn::IfThenElse(finite, x, inf));
      max = hn::Max(max, hn::IfThenElse(finite, x, hn::Neg(inf)));
      const auto magnitude = hn::BitCast(du, hn::Abs(x));
      smallest = hn::Min(smallest, hn::Sub(magnitude, hn::Set(du, 1)));
      const Doubles wide = hn::PromoteTo(d, hn::IfThenElseZero(finite, x));
      sum.Add(v, wide);
      squares.Add(v, hn::Mul(wide, wide));
      magnitudes.sum[v] = hn::Add(magnitudes.sum[v], hn::Abs(wide));
    }
  });
  Moments moments;
  moments.sum = sum.Fold();
  moments.squares = squares.Fold();
  moments.magnitudes = magnitudes.Fold();
  moments.zeros = zero_count.Total();
  moments.nonfinite = static_cast<int64_t>(run.size()) - finite_count.Total();
  moments.min = hn::GetLane(hn::MinOfLanes(df, min)) + 0.0f;
  moments.max = hn::GetLane(hn::MaxOfLanes(df, max)) + 0.0f;
  moments.smallest =
      SmallestFromWord(hn::GetLane(hn::MinOfLanes(du, smallest)));
  return moments;
}

QuantizationErrors ErrorsOf(std::span<const float> run,
                            std::span<const float> quantized) {
  const Wide d;
  const Narrow df;
  PlainLanes errors;
  PlainLanes products;
  PlainLanes of_quantized;
  PlainLanes squares;
  Counter pairs;
  Counter underflows;
  ForEachGroup(run.size(), [&](size_t i, size_t n) HWY_ATTR {
    const Group of_run(run.data() + i, n);
    const Group of_result(quantized.data() + i, n);
    HWY_UNROLL(8)
    for (size_t v = 0; v < kVectors; ++v) {
      const Floats x32 = of_run.Vector(v);
      const Floats q32 = of_result.Vector(v);
      const FloatMask finite = hn::And(FiniteLanes(x32), FiniteLanes(q32));
      pairs.Add(finite);
      const FloatMask lost = hn::And(finite, hn::Eq(q32, hn::Zero(df)));
      underflows.Add(hn::AndNot(hn::Eq(x32, hn::Zero(df)), lost));
      const Doubles x = hn::PromoteTo(d, hn::IfThenElseZero(finite, x32));
      const Doubles q = hn::PromoteTo(d, hn::IfThenElseZero(finite, q32));
      const Doubles error = hn::Sub(x, q);
      errors.sum[v] = hn::MulAdd(error, error, errors.sum[v]);
      products.sum[v] = hn::MulAdd(x, q, products.sum[v]);
      of_quantized.sum[v] = hn::MulAdd(q, q, of_quantized.sum[v]);
      squares.sum[v] = hn::MulAdd(x, x, squares.sum[v]);
    }
  });
  return {errors.Fold(),  products.Fold(), of_quantized.Fold(),
          squares.Fold(), pairs.Total(),   underflows.Total()};
}

void TallyBlocksAlong(std::span<const float> run,
                      const formats::Quantization* spec, BlockTally& tally) {
  constexpr size_t kBlockVectors = formats::kMxBlockSize / kLanes;
  const F32 d;
  const U32 du;
  size_t i = 0;
  for (; i + formats::kMxBlockSize <= run.size(); i += formats::kMxBlockSize) {
    VecU magnitudes[kBlockVectors];
    VecU most = hn::Zero(du);
    VecU least = hn::Set(du, ~0u);
    for (size_t v = 0; v < kBlockVectors; ++v) {
      magnitudes[v] =
          BlockQuantizer::Magnitude(hn::LoadU(d, run.data() + i + v * kLanes));
      most = hn::Max(most, magnitudes[v]);
      least = hn::Min(least, hn::Sub(magnitudes[v], hn::Set(du, 1)));
    }
    const scalar::StridedBlock block = {run.data() + i, 1,
                                        formats::kMxBlockSize};
    const uint32_t largest = hn::GetLane(hn::MaxOfLanes(du, most));
    if (HWY_UNLIKELY(largest >= kInfinityBits)) {
      scalar::TallyBlock(block, spec, tally);
      continue;
    }
    // Only quantised blocks need the place of their largest element.
    const size_t place =
        spec == nullptr ? 0 : FirstEqual<kBlockVectors>(magnitudes, largest);
    const uint32_t smallest = hn::GetLane(hn::MinOfLanes(du, least));
    scalar::TallyFiniteBlock(
        block,
        {std::bit_cast<float>(largest), SmallestFromWord(smallest), place},
        spec, tally);
  }
  scalar::TallyBlocksAlong(run.subspan(i), spec, tally);
}

void TallyBlocksDown(MatrixView<const float> block,
                     const formats::Quantization* spec, BlockTally& tally) {
  const F32 d;
  const U32 du;
  for (size_t j = 0; j < block.cols(); j += kLanes) {
    const size_t columns = std::min(kLanes, block.cols() - j);
    VecU most = hn::Zero(du);
    VecU least = hn::Set(du, ~0u);
    VecU place = hn::Zero(du);
    for (size_t i = 0; i < block.rows(); ++i) {
      const VecU magnitude =
          BlockQuantizer::Magnitude(LoadFirst(d, block.Row(i) + j, columns));
      const auto more = hn::Gt(magnitude, most);
      place =
          hn::IfThenElse(more, hn::Set(du, static_cast<uint32_t>(i)), place);
      most = hn::Max(most, magnitude);
      least = hn::Min(least, hn::Sub(magnitude, hn::Set(du, 1)));
    }
    HWY_ALIGN uint32_t largest[kLanes];
    HWY_ALIGN uint32_t smallest[kLanes];
    HWY_ALIGN uint32_t places[kLanes];
    hn::Store(most, du, largest);
    hn::Store(least, du, smallest);
    hn::Store(place, du, places);
    for (size_t lane = 0; lane < columns; ++lane) {
      const scalar::StridedBlock column = {block.data() + j + lane,
                                           block.stride(), block.rows()};
      if (HWY_UNLIKELY(largest[lane] >= kInfinityBits)) {
        scalar::TallyBlock(column, spec, tally);
      } else {
        scalar::TallyFiniteBlock(
            column,
            {std::bit_cast<float>(largest[lane]),
             SmallestFromWord(smallest[lane]), places[lane]},
            spec, tally);
      }
    }
  }
}

void QuantizeDequantizeDown(MatrixView<const float> block,
                            const formats::Quantization& spec,
                            MatrixView<float> out) {
  const BlockQuantizer quantizer(spec);
  const size_t whole = block.cols() / kLanes * kLanes;
  for (size_t j = 0; j < whole; j += kLanes) {
    QuantizeBlocksDown<1>(quantizer, block.data() + j, block.stride(), kLanes,
                          block.rows(), out.data() + j, out.stride());
  }
  const size_t rest = block.cols() - whole;
  if (rest == 0) return;
  HWY_ALIGN float last[formats::kMxBlockSize * kLanes];
  QuantizeBlocksDown<1>(quantizer, block.data() + whole, block.stride(), rest,
                        block.rows(), last, kLanes);
  for (size_t i = 0; i < block.rows(); ++i) {
    std::memcpy(out.Row(i) + whole, last + i * kLanes, rest * sizeof(float));
  }
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(MomentsOf);
HWY_EXPORT(ErrorsOf);
HWY_EXPORT(TallyBlocksAlong);
HWY_EXPORT(TallyBlocksDown);
HWY_EXPORT(QuantizeDequantizeDown);

}  // namespace

Moments MomentsOf(std::span<const float> run) {
  return HWY_DYNAMIC_DISPATCH(MomentsOf)(run);
}

QuantizationErrors ErrorsOf(std::span<const float> run,
                            std::span<const float> quantized) {
  RequireLength("ErrorsOf", "quantized", quantized.size(), run.size());
  return HWY_DYNAMIC_DISPATCH(ErrorsOf)(run, quantized);
}

void TallyBlocksAlong(std::span<const float> run,
                      const formats::Quantization* spec, BlockTally& tally) {
  HWY_DYNAMIC_DISPATCH(TallyBlocksAlong)(run, spec, tally);
}

void TallyBlocksDown(MatrixView<const float> block,
                     const formats::Quantization* spec, BlockTally& tally) {
  HWY_DYNAMIC_DISPATCH(TallyBlocksDown)(block, spec, tally);
}

void QuantizeDequantizeDown(MatrixView<const float> block,
                            const formats::Quantization& spec,
                            MatrixView<float> out) {
  RequireShape("QuantizeDequantizeDown", "out", out, block.rows(),
               block.cols());
  HWY_DYNAMIC_DISPATCH(QuantizeDequantizeDown)(block, spec, out);
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
