#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/adamw.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using scalar::AdamWUpdate;

#else

void AdamWUpdate(std::span<float> parameter, std::span<float> first_moment,
                 std::span<float> second_moment,
                 std::span<const float> gradient, const AdamWScalars& scalars) {
  const FloatTag d;
  const auto decay = hn::Set(d, scalars.decay);
  const auto beta1 = hn::Set(d, scalars.beta1);
  const auto one_minus_beta1 = hn::Set(d, scalars.one_minus_beta1);
  const auto beta2 = hn::Set(d, scalars.beta2);
  const auto one_minus_beta2 = hn::Set(d, scalars.one_minus_beta2);
  const auto step_size = hn::Set(d, scalars.step_size);
  const auto bias2_sqrt = hn::Set(d, scalars.bias2_sqrt);
  const auto eps = hn::Set(d, scalars.eps);
  const auto grad_scale = hn::Set(d, scalars.grad_scale);
  ForEachVector(d, parameter.size(), [&](size_t i, size_t n) HWY_ATTR {
    const auto h = hn::Mul(LoadFirst(d, gradient.data() + i, n), grad_scale);
    const auto m = hn::MulAdd(beta1, LoadFirst(d, first_moment.data() + i, n),
                              hn::Mul(one_minus_beta1, h));
    const auto v = hn::MulAdd(beta2, LoadFirst(d, second_moment.data() + i, n),
                              hn::Mul(hn::Mul(one_minus_beta2, h), h));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), bias2_sqrt), eps);
    const auto decayed = hn::Mul(LoadFirst(d, parameter.data() + i, n), decay);
    const auto p =
        hn::Sub(decayed, hn::Div(hn::Mul(step_size, m), denominator));
    StoreFirst(d, m, first_moment.data() + i, n);
    StoreFirst(d, v, second_moment.data() + i, n);
    StoreFirst(d, p, parameter.data() + i, n);
  });
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(AdamWUpdate);

}  // namespace

void AdamWUpdate(std::span<float> parameter, std::span<float> first_moment,
                 std::span<float> second_moment,
                 std::span<const float> gradient, const AdamWScalars& scalars,
                 Executor& executor) {
  constexpr const char* kWhere = "AdamWUpdate";
  RequireLength(kWhere, "first_moment", first_moment.size(), parameter.size());
  RequireLength(kWhere, "second_moment", second_moment.size(),
                parameter.size());
  RequireLength(kWhere, "gradient", gradient.size(), parameter.size());
  if (RanElsewhere(&AdamWUpdate, parameter, first_moment, second_moment,
                   gradient, scalars, executor))
    return;
  ForRowRuns(parameter.size(), 1, 1, executor, [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(AdamWUpdate)
    (parameter.subspan(first, count), first_moment.subspan(first, count),
     second_moment.subspan(first, count), gradient.subspan(first, count),
     scalars);
  });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
