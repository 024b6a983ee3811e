// Evaluates the noncentral t distribution: (Z + delta) / sqrt(chi^2_nu / nu) of
// a standard normal Z and an independent chi-squared variable.
#pragma once

namespace isoloss::stats {

/// Returns the t that such a variable is at most with `probability`, by
/// Boost.Math.
/// Errors   ConfigError unless 0 < probability < 1, non_centrality is finite
///          and degrees_of_freedom >= 1.
double NonCentralTQuantile(double probability, double degrees_of_freedom,
                           double non_centrality);

/// Returns the probability that such a variable exceeds t, by Boost.Math. A
/// small one keeps its digits. Above a noncentrality of 1000 it leaves Z out,
/// which alters the probability by some 1e-6.
/// Errors   ConfigError unless t and non_centrality are finite and
///          degrees_of_freedom >= 1.
double NonCentralTUpperTail(double t, double degrees_of_freedom,
                            double non_centrality);

}  // namespace isoloss::stats
