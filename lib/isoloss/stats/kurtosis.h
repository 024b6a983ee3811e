// How heavy the tails of values are.
#pragma once

#include <span>

namespace isoloss::stats {

/// Pearson's kurtosis: the fourth central moment over the square of the second,
/// both with divisor n. 3 for normal values, n - 2 + 1 / (n - 1) for one value
/// that differs from n - 1 equal ones, never below 1.
/// Special  NaN for no values, if all are equal, or if one is not finite.
double Kurtosis(std::span<const float> values);

}  // namespace isoloss::stats
