#include <algorithm>
#include <array>

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

void RequireLengths(const MeasuredAdamW& update) {
  constexpr const char* kWhere = "MeasuredAdamWUpdate";
  const size_t size = update.parameter.size();
  const size_t leaves = SquaresLeaves(size);
  RequireLength(kWhere, "first_moment", update.first_moment.size(), size);
  RequireLength(kWhere, "second_moment", update.second_moment.size(), size);
  RequireLength(kWhere, "gradient", update.gradient.size(), size);
  RequireLength(kWhere, "parameter_squares", update.parameter_squares.size(),
                leaves);
  RequireLength(kWhere, "update_squares", update.update_squares.size(), leaves);
}

/// Updates the elements of one leaf and computes its sums of squares.
void UpdateLeaf(const MeasuredAdamW& update, size_t leaf) {
  static Executor alone(1);  // runs loops in the calling thread
  const size_t first = leaf * kSquaresLeaf;
  const size_t size = std::min(kSquaresLeaf, update.parameter.size() - first);
  const std::span<float> parameter = update.parameter.subspan(first, size);
  const std::span<float> gradient = update.gradient.subspan(first, size);
  std::array<float, kSquaresLeaf> change;
  SumOfSquaresLeaves(parameter, update.parameter_squares.subspan(leaf, 1),
                     alone);
  std::copy(parameter.begin(), parameter.end(), change.begin());
  AdamWUpdate(parameter, update.first_moment.subspan(first, size),
              update.second_moment.subspan(first, size), gradient,
              update.scalars, alone);
  if (update.keeps_parameter) {
    std::copy_n(change.begin(), size, gradient.begin());
  }
  for (size_t i = 0; i < size; ++i) change[i] = parameter[i] - change[i];
  SumOfSquaresLeaves(std::span(change).first(size),
                     update.update_squares.subspan(leaf, 1), alone);
}

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

void MeasuredAdamWUpdate(std::span<const MeasuredAdamW> updates,
                         Executor& executor) {
  for (const MeasuredAdamW& update : updates) RequireLengths(update);
  if (RanElsewhere(&MeasuredAdamWUpdate, updates, executor)) return;
  for (const MeasuredAdamW& update : updates) {
    ForRowRuns(update.parameter.size(), 1, kSquaresLeaf, executor,
               [&](size_t first, size_t count) {
                 for (size_t i = 0; i < count; i += kSquaresLeaf) {
                   UpdateLeaf(update, (first + i) / kSquaresLeaf);
                 }
               });
  }
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
