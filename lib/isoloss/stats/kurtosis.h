// Measures how heavy the tails of values are.
#pragma once

#include <span>

namespace isoloss::stats {

/// Returns Pearson's kurtosis: the fourth central moment over the square of the
/// second, both with divisor n. It is 3 for normal values and never below 1.
/// One value that differs from n - 1 equal ones gives n - 2 + 1 / (n - 1).
/// Special  NaN for no values, if all are equal, or if one is not finite.
double Kurtosis(std::span<const float> values);

}  // namespace isoloss::stats
