// The noncentral t distribution: (Z + delta) / sqrt(chi^2_nu / nu) of a
// standard normal Z and an independent chi-squared variable.
#pragma once

namespace isoloss::stats {

/// Probability that a noncentral t variable is at most `t`. Boost.Math.
/// Errors   ConfigError unless t and non_centrality are finite and
///          degrees_of_freedom >= 1.
double NonCentralTCdf(double t, double degrees_of_freedom,
                      double non_centrality);

/// The t at which NonCentralTCdf is `probability`.
/// Errors   ConfigError unless 0 < probability < 1, non_centrality is finite
///          and degrees_of_freedom >= 1.
double NonCentralTQuantile(double probability, double degrees_of_freedom,
                           double non_centrality);

}  // namespace isoloss::stats
