#include "isoloss/estimators/growth.h"

#include <cmath>
#include <limits>

#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

constexpr double kGrowthTail = 0.025;

}  // namespace

std::optional<Growth> FitGrowth(std::span<const int64_t> steps,
                                std::span<const double> doublings) {
  std::vector<double> x;
  std::vector<double> y;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!std::isfinite(doublings[i])) continue;
    x.push_back(static_cast<double>(steps[i]));
    y.push_back(doublings[i]);
  }
  if (x.size() < 3) return std::nullopt;
  const double x_mean = stats::Mean(x);
  const double y_mean = stats::Mean(y);
  double xx = 0;
  double xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - x_mean) * (x[i] - x_mean);
    xy += (x[i] - x_mean) * (y[i] - y_mean);
  }
  const double rate = xy / xx;
  double residuals = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double residual = y[i] - y_mean - rate * (x[i] - x_mean);
    residuals += residual * residual;
  }
  const auto freedom = static_cast<double>(x.size() - 2);
  const double reach = stats::StudentTQuantile(1 - kGrowthTail, freedom) *
                       std::sqrt(residuals / freedom / xx);
  return Growth{rate, rate - reach, rate + reach,
                static_cast<int64_t>(x.size())};
}

std::optional<Growth> MeanGrowth(std::span<const double> rates) {
  if (rates.empty()) return std::nullopt;
  const stats::MeanInterval mean =
      stats::IntervalOfMean(stats::Summarize(rates), kGrowthTail);
  return Growth{mean.mean, mean.lower, mean.upper,
                static_cast<int64_t>(rates.size())};
}

}  // namespace isoloss::estimators
