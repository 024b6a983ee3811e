#include "isoloss/stats/tolerance_limit.h"

#include <boost/math/distributions/normal.hpp>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/stats/non_central_t.h"

namespace isoloss::stats {

double ToleranceFactor(int64_t count, double coverage, double confidence) {
  if (!(count >= 2 && coverage > 0 && coverage < 1 && confidence > 0 &&
        confidence < 1)) {
    ThrowError(ErrorKind::kConfig,
               "ToleranceFactor: {} values, coverage {} and confidence {}, but "
               "there must be at least 2 values and both probabilities must "
               "lie in (0, 1).",
               count, coverage, confidence);
  }
  const double n = static_cast<double>(count);
  const double z = boost::math::quantile(
      boost::math::normal_distribution<double>(), coverage);
  return NonCentralTQuantile(confidence, n - 1, z * std::sqrt(n)) /
         std::sqrt(n);
}

double OrderStatisticPValue(std::span<const double> null, double observed) {
  int64_t at_least = 0;
  for (const double value : null) {
    if (std::isnan(value)) {
      ThrowError(ErrorKind::kConfig,
                 "OrderStatisticPValue: one of {} null values is NaN, but null "
                 "values must be numbers.",
                 null.size());
    }
    at_least += value >= observed ? 1 : 0;
  }
  return static_cast<double>(1 + at_least) /
         static_cast<double>(null.size() + 1);
}

}  // namespace isoloss::stats
