#include "isoloss/stats/ratio_interval.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::stats {
namespace {

double Covariance(std::span<const double> y, double mean_y,
                  std::span<const double> x, double mean_x) {
  std::vector<double> products;
  for (size_t i = 0; i < y.size(); ++i) {
    products.push_back((y[i] - mean_y) * (x[i] - mean_x));
  }
  return Sum(products) / static_cast<double>(y.size() - 1);
}

}  // namespace

std::optional<RatioInterval> FiellerInterval(std::span<const double> y,
                                             std::span<const double> x,
                                             double alpha) {
  if (y.size() != x.size()) {
    ThrowError(ErrorKind::kConfig,
               "FiellerInterval: {} dividends and {} divisors, but they are "
               "pairs. Pass as many of both.",
               y.size(), x.size());
  }
  if (y.size() < 2) return std::nullopt;
  const double mean_y = Mean(y);
  const double mean_x = Mean(x);
  const double n = static_cast<double>(y.size());
  const double t = StudentTQuantile(alpha, n - 1);
  const double k = t * t / n;
  // a r^2 - 2 b r + c <= 0
  const double a = mean_x * mean_x - k * Covariance(x, mean_x, x, mean_x);
  const double b = mean_y * mean_x - k * Covariance(y, mean_y, x, mean_x);
  const double c = mean_y * mean_y - k * Covariance(y, mean_y, y, mean_y);
  // These conditions leave NaN without an interval.
  if (!(a > 0) || !std::isfinite(b) || !std::isfinite(c)) return std::nullopt;
  // Only rounding can make it negative, since mean_y / mean_x is always in the
  // set.
  const double root = std::sqrt(std::max(0.0, b * b - a * c));
  return RatioInterval{(b - root) / a, (b + root) / a};
}

}  // namespace isoloss::stats
