// Defines the vectors of the GEMM and of quantising, and transposes them in
// registers. Each Highway target with a fused multiply-add and vectors of fixed
// length includes this file once.
#if defined(ISOLOSS_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_TRANSPOSE_INL_H_
#undef ISOLOSS_KERNELS_TRANSPOSE_INL_H_
#else
#define ISOLOSS_KERNELS_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "isoloss/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

using F32 = FloatTag;
using VecF = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

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
  // 4p + j needs that block from every quad q.
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

/// Lane i of the result is op over all lanes of vector i. `op` must be
/// associative and commutative. This takes half the shuffles of Transpose.
template <class V, class Op>
HWY_INLINE V FoldEach(const V (&v)[kLanes], const Op& op) {
  const hn::DFromV<V> d;
  const hn::Repartition<uint64_t, hn::DFromV<V>> d64;
  constexpr size_t kQuads = kLanes / 4;
  V quads[kQuads];  // lane 4p + j has what is left of vector 4q + j in block p
  HWY_UNROLL(4)
  for (size_t q = 0; q < kQuads; ++q) {
    const V* of = v + 4 * q;
    const auto pair = [&](const V& x, const V& y) HWY_ATTR {
      return hn::BitCast(
          d64, op(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y)));
    };
    const auto low = pair(of[0], of[1]);
    const auto high = pair(of[2], of[3]);
    quads[q] = op(hn::BitCast(d, hn::InterleaveLower(d64, low, high)),
                  hn::BitCast(d, hn::InterleaveUpper(d64, low, high)));
  }
  const auto halves = [&](const V& x, const V& y) HWY_ATTR {
    return op(hn::ConcatLowerLower(d, y, x), hn::ConcatUpperUpper(d, y, x));
  };
  if constexpr (kLanes == 16) {
    const auto blocks = [&](const V& x, const V& y) HWY_ATTR {
      return op(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(y), x),
                hn::OddEvenBlocks(y, hn::SwapAdjacentBlocks(x)));
    };
    return halves(blocks(quads[0], quads[1]), blocks(quads[2], quads[3]));
  } else if constexpr (kLanes == 8) {
    return halves(quads[0], quads[1]);
  } else {
    return quads[0];
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_TRANSPOSE_INL_H_
