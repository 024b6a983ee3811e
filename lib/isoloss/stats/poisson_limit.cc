#include "isoloss/stats/poisson_limit.h"

#include <boost/math/special_functions/gamma.hpp>
#include <boost/math/special_functions/log1p.hpp>
#include <cmath>
#include <numbers>

#include "isoloss/base/error.h"

namespace isoloss::stats {
namespace {

void CheckMean(const char* function, double mean) {
  // Above 2^53 = 9e15 a double no longer holds every count.
  if (!(mean >= 0 && mean <= 1e15)) {
    ThrowError(ErrorKind::kConfig,
               "{}: mean is {}, but it must lie in [0, 1e15].", function, mean);
  }
}

/// Returns the lower incomplete gamma function P(a, x) for large a, by the
/// first two terms of Temme's uniform expansion. The relative error is about 1
/// / a. Boost's own series takes more than sqrt(a) terms and gives up for a of
/// 1e12.
double LargeGammaP(double a, double x) {
  const double mu = (x - a) / a;
  const double eta =
      std::copysign(std::sqrt(-2 * boost::math::log1pmx(mu)), mu);
  // 1 / mu - 1 / eta cancels near 0, where its expansion is as good.
  const double correction =
      std::fabs(eta) < 1e-3 ? -1.0 / 3 + eta / 12 : 1 / mu - 1 / eta;
  return std::erfc(-eta * std::sqrt(a / 2)) / 2 -
         std::exp(-a * eta * eta / 2) * correction /
             std::sqrt(2 * std::numbers::pi * a);
}

/// Returns P(N > count).
double Exceedance(int64_t count, double mean) {
  const double a = static_cast<double>(count) + 1;
  if (mean == 0) return 0;
  return a > 1e8 ? LargeGammaP(a, mean) : boost::math::gamma_p(a, mean);
}

}  // namespace

int64_t PoissonUpperLimit(double mean, double alpha) {
  CheckMean("PoissonUpperLimit", mean);
  if (!(alpha > 0 && alpha < 1)) {
    ThrowError(ErrorKind::kConfig,
               "PoissonUpperLimit: alpha is {}, but it must lie in (0, 1).",
               alpha);
  }
  // P(N > c) falls with c. So c grows from the mean until the probability is
  // small enough, then a bisection follows. -1 is certainly too small, as P(N >
  // -1) is 1.
  int64_t low = -1;
  int64_t high = static_cast<int64_t>(mean);
  int64_t width = 1 + static_cast<int64_t>(std::sqrt(mean));
  while (Exceedance(high, mean) > alpha) {
    low = high;
    high += width;
    width *= 2;
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (Exceedance(middle, mean) > alpha ? low : high) = middle;
  }
  return high;
}

double PoissonPValue(int64_t count, double mean) {
  CheckMean("PoissonPValue", mean);
  if (count < 0) {
    ThrowError(ErrorKind::kConfig,
               "PoissonPValue: count is {}, but it must not be negative.",
               count);
  }
  return count == 0 ? 1 : Exceedance(count - 1, mean);
}

}  // namespace isoloss::stats
