#include "isoloss/stats/mean_interval.h"

#include <cmath>
#include <limits>

#include "isoloss/stats/student_t.h"

namespace isoloss::stats {

MeanInterval IntervalOfMean(const Summary& summary, double alpha) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (summary.count < 2) return {summary.mean, -kInfinity, kInfinity};
  const double n = static_cast<double>(summary.count);
  // By symmetry t_{1-alpha} = -t_{alpha}; 1 - alpha would round to 1.
  const double half_width =
      -StudentTQuantile(alpha, n - 1) * summary.sd / std::sqrt(n);
  return {summary.mean, summary.mean - half_width, summary.mean + half_width};
}

}  // namespace isoloss::stats
