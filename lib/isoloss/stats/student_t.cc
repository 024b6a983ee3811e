#include "isoloss/stats/student_t.h"

#include <boost/math/distributions/students_t.hpp>

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

}  // namespace isoloss::stats
