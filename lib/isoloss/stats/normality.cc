#include "isoloss/stats/normality.h"

#include <algorithm>
#include <boost/math/statistics/anderson_darling.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/summary.h"

namespace isoloss::stats {
namespace {

/// Evaluates Stephens' fit in four pieces to the tail of the modified
/// statistic.
double PValue(double a) {
  if (a >= 0.6) {
    // The parabola turns upward beyond its range; there p is below 1e-37.
    if (a > 13) return 0;
    return std::exp(1.2937 - 5.709 * a + 0.0186 * a * a);
  }
  if (a >= 0.34) return std::exp(0.9177 - 4.279 * a - 1.38 * a * a);
  if (a >= 0.2) return 1 - std::exp(-8.318 + 42.796 * a - 59.938 * a * a);
  return 1 - std::exp(-13.436 + 101.14 * a - 223.73 * a * a);
}

}  // namespace

NormalityTest AndersonDarling(std::span<const double> values) {
  const Summary summary = Summarize(values);
  if (summary.count < 8 || !std::isfinite(summary.mean)) {
    ThrowError(ErrorKind::kConfig,
               "AndersonDarling: {} values with mean {}, but there must be at "
               "least 8 and all of them finite.",
               summary.count, summary.mean);
  }
  constexpr NormalityTest kNotNormal = {
      .statistic = std::numeric_limits<double>::infinity(), .p_value = 0};
  if (!(summary.sd > 0)) return kNotNormal;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double a_squared =
      boost::math::statistics::anderson_darling_normality_statistic(
          sorted, summary.mean, summary.sd);
  if (!std::isfinite(a_squared)) return kNotNormal;
  const double n = static_cast<double>(summary.count);
  const double modified = a_squared * (1 + 0.75 / n + 2.25 / (n * n));
  return {.statistic = modified, .p_value = PValue(modified)};
}

}  // namespace isoloss::stats
