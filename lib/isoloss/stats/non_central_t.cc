#include "isoloss/stats/non_central_t.h"

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::stats {
namespace {

/// Boost sums a Poisson series of mean non_centrality^2 / 2, and its integers
/// only hold values up to 65 535.
constexpr double kLargestNonCentrality = 1000;

}  // namespace

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
  if (non_centrality > kLargestNonCentrality) {
    const double ratio = non_centrality / t;
    return t <= 0
               ? 1
               : boost::math::cdf(
                     boost::math::chi_squared_distribution(degrees_of_freedom),
                     degrees_of_freedom * ratio * ratio);
  }
  return boost::math::cdf(
      boost::math::complement(boost::math::non_central_t_distribution<double>(
                                  degrees_of_freedom, non_centrality),
                              t));
}

}  // namespace isoloss::stats
