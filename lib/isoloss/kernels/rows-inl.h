// Row-wise kernels walk along a row in vectors of at most 16 floats with masked
// ends, and sum in 16 logical lanes whatever the vector width. Each Highway
// target that has a fused multiply-add includes this file once.
#if defined(ISOLOSS_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_ROWS_INL_H_
#undef ISOLOSS_KERNELS_ROWS_INL_H_
#else
#define ISOLOSS_KERNELS_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "isoloss/kernels/bf16-inl.h"
#include "isoloss/kernels/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A horizontal sum has this number of logical lanes, on which every result
/// depends by definition.
inline constexpr size_t kLogicalLanes = 16;

template <typename T>
using LaneTag = hn::CappedTag<T, kLogicalLanes>;
using FloatTag = LaneTag<float>;

/// Loads the first n <= Lanes(d) elements, followed by zeros. Touches nothing
/// beyond them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::VFromD<D> LoadFirst(D d, const T* from, size_t n) {
  if (n == hn::MaxLanes(D())) return hn::LoadU(d, from);
#if HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(d, n), d, from);
#else  // where masked loads may touch masked-out memory
  T lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, n * sizeof(T));
  return hn::LoadU(d, lanes);
#endif
}

/// Stores the first n <= Lanes(d) lanes. Touches nothing beyond them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StoreFirst(D d, hn::VFromD<D> v, T* to, size_t n) {
  if (n == hn::MaxLanes(D())) return hn::StoreU(v, d, to);
#if HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(d, n), d, to);
#else
  T lanes[hn::MaxLanes(D())];
  hn::StoreU(v, d, lanes);
  std::memcpy(to, lanes, n * sizeof(T));
#endif
}

/// Keeps the first n lanes and makes the rest zero.
template <class D>
HWY_INLINE hn::VFromD<D> KeepFirst(D d, hn::VFromD<D> v, size_t n) {
  if (n == hn::MaxLanes(D())) return v;
  return hn::IfThenElseZero(hn::FirstN(d, n), v);
}

template <class D>
HWY_INLINE hn::VFromD<D> Round(D d, hn::VFromD<D> v, Rounding rounding) {
  return rounding == Rounding::kBf16 ? RoundToBf16(d, v) : v;
}

/// Calls visit(i, n) for the runs [i, i + n) of [0, count), one vector each;
/// only the last can be shorter than a vector.
template <class D, class Visit>
HWY_INLINE void ForEachVector(D /*d*/, size_t count, const Visit& visit) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) visit(i, kLanes);
  if (i < count) visit(i, count - i);
}

/// The intermediate values of a block of this number of elements stay in the
/// first-level cache.
inline constexpr size_t kBlock = 256;

/// Calls visit(i, n) for the blocks [i, i + n) of [0, count). It serves kernels
/// whose chain of dependent operations is too long for a processor to overlap
/// with the chain of the next vectors. Two passes over a block are then faster
/// than one.
template <class Visit>
HWY_INLINE void ForEachBlock(size_t count, const Visit& visit) {
  for (size_t i = 0; i < count; i += kBlock) {
    visit(i, std::min(kBlock, count - i));
  }
}

/// Adds lanes pairwise: first those half their number apart, then a quarter, …,
/// 1.
template <class D>
HWY_INLINE hn::TFromD<D> FoldLanes(D /*d*/, hn::VFromD<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return FoldLanes(half,
                     hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Sums over i < count in 16 logical lanes. add(acc, i, n) adds the terms of
/// elements [i, i + n) to the first n lanes of acc, adds zero terms to the
/// remaining lanes, and returns acc. n may be 0.
template <class D, class Add>
HWY_INLINE hn::TFromD<D> SumInLanes(D d, size_t count, const Add& add) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  constexpr size_t kVectors = kLogicalLanes / kLanes;
  hn::VFromD<D> acc[kVectors];
  for (auto& vector : acc) vector = hn::Zero(d);
  size_t i = 0;
  for (; i + kLogicalLanes <= count; i += kLogicalLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      acc[v] = add(acc[v], i + v * kLanes, kLanes);
    }
  }
  if (i < count) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t first = std::min(i + v * kLanes, count);
      acc[v] = add(acc[v], first, std::min(kLanes, count - first));
    }
  }
  for (size_t apart = kVectors / 2; apart > 0; apart /= 2) {
    for (size_t v = 0; v < apart; ++v) acc[v] = hn::Add(acc[v], acc[v + apart]);
  }
  return FoldLanes(d, acc[0]);
}

/// Computes the scalar RowDot.
HWY_INLINE float DotInLanes(const float* a, const float* b, size_t count) {
  const FloatTag d;
  return SumInLanes(d, count, [&](auto acc, size_t i, size_t n) HWY_ATTR {
    return hn::MulAdd(LoadFirst(d, a + i, n), LoadFirst(d, b + i, n), acc);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_ROWS_INL_H_
