#include "isoloss/stats/non_central_t.h"

#include <boost/math/distributions/non_central_t.hpp>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::stats {

double NonCentralTQuantile(double probability, double degrees_of_freedom,
                           double non_centrality) {
  if (!(degrees_of_freedom >= 1 && std::isfinite(non_centrality))) {
    ThrowError(ErrorKind::kConfig,
               "NonCentralTQuantile: {} degrees of freedom with noncentrality "
               "{}, but the degrees of freedom must be at least 1 and the "
               "noncentrality finite.",
               degrees_of_freedom, non_centrality);
  }
  if (!(probability > 0 && probability < 1)) {
    ThrowError(ErrorKind::kConfig,
               "NonCentralTQuantile: probability is {}, but it must lie in "
               "(0, 1).",
               probability);
  }
  return boost::math::quantile(boost::math::non_central_t_distribution<double>(
                                   degrees_of_freedom, non_centrality),
                               probability);
}

double NonCentralTUpperTail(double t, double degrees_of_freedom,
                            double non_centrality) {
  if (!(std::isfinite(t) && degrees_of_freedom >= 1 &&
        std::isfinite(non_centrality))) {
    ThrowError(ErrorKind::kConfig,
               "NonCentralTUpperTail: t is {}, {} degrees of freedom, "
               "noncentrality {}, but the degrees of freedom must be at least "
               "1 and the others finite.",
               t, degrees_of_freedom, non_centrality);
  }
  return boost::math::cdf(
      boost::math::complement(boost::math::non_central_t_distribution<double>(
                                  degrees_of_freedom, non_centrality),
                              t));
}

}  // namespace isoloss::stats
