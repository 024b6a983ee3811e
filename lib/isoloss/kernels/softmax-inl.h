// Softmax and cross-entropy share these parts. Each Highway target that has a
// fused multiply-add includes this file once.
#if defined(ISOLOSS_KERNELS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_SOFTMAX_INL_H_
#undef ISOLOSS_KERNELS_SOFTMAX_INL_H_
#else
#define ISOLOSS_KERNELS_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <limits>

#include "isoloss/kernels/elementary-inl.h"
#include "isoloss/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// Returns the larger of each pair, and `max` if `value` is NaN.
template <class D>
HWY_INLINE hn::VFromD<D> LargerOf(D /*d*/, hn::VFromD<D> value,
                                  hn::VFromD<D> max) {
#if HWY_ARCH_X86  // where Max returns the second operand unless a > b
  return hn::Max(value, max);
#else
  return hn::IfThenElse(hn::Gt(value, max), value, max);
#endif
}

/// Returns the largest value, and -inf if there is none. NaN is passed over.
/// The result may be +0 or -0: e^(x - max) does not depend on it.
HWY_INLINE float RowMax(const float* values, size_t count) {
  const FloatTag d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  constexpr size_t kChains = 4;  // for a maximum the order does not matter
  hn::VFromD<FloatTag> max[kChains];
  for (auto& chain : max) {
    chain = hn::Set(d, -std::numeric_limits<float>::infinity());
  }
  size_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    for (size_t c = 0; c < kChains; ++c) {
      max[c] = LargerOf(d, hn::LoadU(d, values + i + c * kLanes), max[c]);
    }
  }
  ForEachVector(d, count - i, [&](size_t j, size_t n) HWY_ATTR {
    auto value = LoadFirst(d, values + i + j, n);
    if (n < kLanes) value = hn::IfThenElse(hn::FirstN(d, n), value, max[0]);
    max[0] = LargerOf(d, value, max[0]);
  });
  for (size_t c = 1; c < kChains; ++c) max[0] = LargerOf(d, max[c], max[0]);
  return hn::GetLane(hn::MaxOfLanes(d, max[0]));
}

/// e_j = Exp((x_j - max) * scale), stored unless e is nullptr; returns their
/// sum. `e` may be `x`.
HWY_INLINE float ShiftedExponentials(const float* x, size_t count, float max,
                                     float scale, float* e) {
  const FloatTag d;
  const auto max_all = hn::Set(d, max);
  const auto scale_all = hn::Set(d, scale);
  return SumInLanes(d, count, [&](auto acc, size_t i, size_t n) HWY_ATTR {
    const auto below = hn::Sub(LoadFirst(d, x + i, n), max_all);
    const auto e_i = Exp(d, hn::Mul(below, scale_all));
    if (e != nullptr) StoreFirst(d, e_i, e + i, n);
    return hn::Add(acc, KeepFirst(d, e_i, n));
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_SOFTMAX_INL_H_
