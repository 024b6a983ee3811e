// Student's t distribution.
#pragma once

namespace isoloss::stats {

/// The t for which a Student-t variable with `degrees_of_freedom` is below t
/// with the given probability. Boost.Math, policies of its own defaults.
/// Errors   ConfigError unless 0 < probability < 1 and degrees_of_freedom >= 1.
double StudentTQuantile(double probability, double degrees_of_freedom);

/// Probability that a Student-t variable exceeds t; small ones keep their
/// digits. Special: 0 and 1 for t of +infinity and -infinity.
/// Errors   ConfigError unless t is a number and degrees_of_freedom >= 1.
double StudentTUpperTail(double t, double degrees_of_freedom);

}  // namespace isoloss::stats
