#include "isoloss/oracle/factor_sums.h"

#include "isoloss/base/error.h"
#include "isoloss/oracle/estimate_math.h"

// Highway compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/oracle/factor_sums.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::oracle::HWY_NAMESPACE {
// Each target and each file has functions of these names.
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void AddFactors(const Uncertain* factors, size_t stride,
                MatrixView<const double> values, FactorSums& sums) {
  const hn::CappedTag<double, kFactorLanes> d;
  const auto rounding = hn::Set(d, kRoundingVariance);
  for (size_t c = 0; c < values.cols(); c += hn::Lanes(d)) {
    double* at[FactorSums::kFigures];
    for (size_t f = 0; f < FactorSums::kFigures; ++f) {
      at[f] = sums.sums.Row(f) + c;
    }
    auto exact = hn::LoadU(d, at[FactorSums::kExact]);
    auto size = hn::LoadU(d, at[FactorSums::kSize]);
    auto input = hn::LoadU(d, at[FactorSums::kInput]);
    auto variance = hn::LoadU(d, at[FactorSums::kVariance]);
    for (size_t k = 0; k < values.rows(); ++k) {
      const Uncertain& factor = factors[k * stride];
      const auto value = hn::LoadU(d, values.Row(k) + c);
      // These products are not exact, so none may be fused with a sum.
      const auto term = hn::Mul(hn::Set(d, factor.exact), value);
      exact = hn::Add(exact, term);
      size = hn::Add(size, hn::Abs(term));
      input = hn::Add(input, hn::Mul(hn::Set(d, factor.bound), hn::Abs(value)));
      const auto of_factor =
          hn::Mul(hn::Mul(hn::Set(d, factor.variance), value), value);
      const auto of_sum = hn::Mul(hn::Mul(rounding, exact), exact);
      variance = hn::Add(variance, hn::Add(of_factor, of_sum));
    }
    hn::StoreU(exact, d, at[FactorSums::kExact]);
    hn::StoreU(size, d, at[FactorSums::kSize]);
    hn::StoreU(input, d, at[FactorSums::kInput]);
    hn::StoreU(variance, d, at[FactorSums::kVariance]);
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::oracle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::oracle {
namespace {

HWY_EXPORT(AddFactors);

}  // namespace

void AddFactors(const Uncertain* factors, size_t stride,
                MatrixView<const double> values, FactorSums& sums) {
  ISOLOSS_ASSERT(values.cols() == sums.sums.cols() &&
                 values.cols() % kFactorLanes == 0);
  sums.terms += values.rows();
  HWY_DYNAMIC_DISPATCH(AddFactors)(factors, stride, values, sums);
}

}  // namespace isoloss::oracle

#endif  // HWY_ONCE
