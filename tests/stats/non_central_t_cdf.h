// What the quantile and the power of tests invert.
#pragma once

#include <boost/math/distributions/non_central_t.hpp>

namespace isoloss::stats {

/// Probability that a noncentral t variable is at most `t`.
inline double NonCentralTCdf(double t, double degrees_of_freedom,
                             double non_centrality) {
  return boost::math::cdf(boost::math::non_central_t_distribution<double>(
                              degrees_of_freedom, non_centrality),
                          t);
}

}  // namespace isoloss::stats
