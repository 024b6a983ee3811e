#include "isoloss/stats/student_t.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::stats {

double StudentTQuantile(double probability, double degrees_of_freedom) {
  if (!(probability > 0 && probability < 1 && degrees_of_freedom >= 1)) {
    ThrowError(ErrorKind::kConfig,
               "StudentTQuantile: probability {} with {} degrees of freedom, "
               "but the probability must lie in (0, 1) and the degrees of "
               "freedom be at least 1.",
               probability, degrees_of_freedom);
  }
  return boost::math::quantile(
      boost::math::students_t_distribution<double>(degrees_of_freedom),
      probability);
}

double StudentTUpperTail(double t, double degrees_of_freedom) {
  if (std::isnan(t) || !(degrees_of_freedom >= 1)) {
    ThrowError(ErrorKind::kConfig,
               "StudentTUpperTail: t is {} with {} degrees of freedom, but t "
               "must be a number and the degrees of freedom at least 1.",
               t, degrees_of_freedom);
  }
  if (std::isinf(t)) return t > 0 ? 0 : 1;
  return boost::math::cdf(boost::math::complement(
      boost::math::students_t_distribution<double>(degrees_of_freedom), t));
}

}  // namespace isoloss::stats
