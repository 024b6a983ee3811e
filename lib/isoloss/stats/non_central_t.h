// The noncentral t distribution: (Z + delta) / sqrt(chi^2_nu / nu) of a
// standard normal Z and an independent chi-squared variable.
#pragma once

namespace isoloss::stats {

/// The t that such a variable is at most with `probability`. Boost.Math.
/// Errors   ConfigError unless 0 < probability < 1, non_centrality is finite
///          and degrees_of_freedom >= 1.
double NonCentralTQuantile(double probability, double degrees_of_freedom,
                           double non_centrality);

/// Probability that such a variable exceeds t; small ones keep their digits.
/// Boost.Math; with a noncentrality above 1000 Z is left out, which alters the
/// probability by some 1e-6.
/// Errors   ConfigError unless t and non_centrality are finite and
///          degrees_of_freedom >= 1.
double NonCentralTUpperTail(double t, double degrees_of_freedom,
                            double non_centrality);

}  // namespace isoloss::stats
