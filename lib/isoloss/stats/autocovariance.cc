#include "isoloss/stats/autocovariance.h"

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/stats/summary.h"

namespace isoloss::stats {
namespace {

void CheckLength(const char* function, std::span<const double> values) {
  if (values.size() < 4) {
    ThrowError(ErrorKind::kConfig,
               "{}: {} values, but a long-run variance needs at least 4.",
               function, values.size());
  }
}

/// Returns whether values differ, which a rounded mean cannot tell.
bool HasSpread(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(),
                     [&](double value) { return value != values.front(); });
}

}  // namespace

std::vector<double> Autocovariances(std::span<const double> values,
                                    int64_t lags) {
  const int64_t n = static_cast<int64_t>(values.size());
  const double mean = Mean(values);
  if (!(lags >= 0 && lags < n) || !std::isfinite(mean)) {
    ThrowError(ErrorKind::kConfig,
               "Autocovariances: {} lags of {} values with mean {}, but the "
               "lags must be at least 0 and fewer than the values, and all "
               "values finite.",
               lags, n, mean);
  }
  std::vector<double> deviations(values.begin(), values.end());
  for (double& value : deviations) value -= mean;
  std::vector<double> gamma;
  for (int64_t lag = 0; lag <= lags; ++lag) {
    double sum = 0;
    for (size_t t = static_cast<size_t>(lag); t < deviations.size(); ++t) {
      sum += deviations[t] * deviations[t - static_cast<size_t>(lag)];
    }
    gamma.push_back(sum / static_cast<double>(n));
  }
  return gamma;
}

int64_t NeweyWestLag(std::span<const double> values) {
  CheckLength("NeweyWestLag", values);
  const double n = static_cast<double>(values.size());
  const double most = std::floor((n - 1) / 2);
  const double used = std::floor(4 * std::pow(n / 100, 2.0 / 9));
  const std::vector<double> gamma =
      Autocovariances(values, static_cast<int64_t>(std::min(used, most)));
  if (!HasSpread(values)) return 0;
  double s0 = gamma[0];
  double s1 = 0;
  for (size_t j = 1; j < gamma.size(); ++j) {
    s0 += 2 * gamma[j];
    s1 += 2 * static_cast<double>(j) * gamma[j];
  }
  // s0 = 0 makes the ratio infinite, and the limit applies.
  const double ratio = s1 == 0 ? 0 : s1 / s0;
  const double lag = std::floor(1.1447 * std::cbrt(ratio * ratio * n));
  return static_cast<int64_t>(std::min(lag, most));
}

HacError NeweyWestError(std::span<const double> values,
                        std::optional<int64_t> lag) {
  CheckLength("NeweyWestError", values);
  HacError result;
  result.lag = lag.has_value() ? *lag : NeweyWestLag(values);
  const std::vector<double> gamma = Autocovariances(values, result.lag);
  if (!HasSpread(values)) return result;
  const double bandwidth = static_cast<double>(result.lag) + 1;
  double sum = gamma[0];
  for (size_t j = 1; j < gamma.size(); ++j) {
    sum += 2 * (1 - static_cast<double>(j) / bandwidth) * gamma[j];
  }
  // With the Bartlett kernel only rounding can make the sum negative.
  const double n = static_cast<double>(values.size());
  result.standard_error = std::sqrt(std::max(0.0, sum) / (n - 1));
  return result;
}

}  // namespace isoloss::stats
