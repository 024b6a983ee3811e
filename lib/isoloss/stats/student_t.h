// Student's t distribution.
#pragma once

namespace isoloss::stats {

/// The t for which a Student-t variable with `degrees_of_freedom` is below t
/// with the given probability. Boost.Math, policies of its own defaults.
/// Errors   ConfigError unless 0 < probability < 1 and degrees_of_freedom >= 1.
double StudentTQuantile(double probability, double degrees_of_freedom);

}  // namespace isoloss::stats
