// Evaluates Student's t distribution.
#pragma once

namespace isoloss::stats {

/// Returns the t that a Student-t variable with `degrees_of_freedom` is below
/// with the given probability, by Boost.Math with its default policies.
/// Errors   ConfigError unless 0 < probability < 1 and degrees_of_freedom >= 1.
double StudentTQuantile(double probability, double degrees_of_freedom);

/// Returns the probability that a Student-t variable exceeds t. A small one
/// keeps its digits. Special: 0 and 1 for t of +infinity and -infinity.
/// Errors   ConfigError unless t is a number and degrees_of_freedom >= 1.
double StudentTUpperTail(double t, double degrees_of_freedom);

}  // namespace isoloss::stats
