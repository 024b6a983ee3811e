// Sums, means and standard deviations that do not lose digits.
#pragma once

#include <cstdint>
#include <span>

namespace isoloss::stats {

/// Sum with Neumaier's compensation: the error is that of one rounding plus
/// terms of order n * epsilon^2.
/// Special  0 for no values; NaN if a value is not finite.
/// Source   Neumaier, ZAMM 54 (1974), 39-51.
double Sum(std::span<const double> values);

/// Sum / count. Special: NaN for no values or if a value is not finite.
double Mean(std::span<const double> values);

/// What a t interval needs to know about a sample.
struct Summary {
  int64_t count = 0;
  double mean = 0;
  /// Sample standard deviation, divisor count - 1.
  double sd = 0;
};

/// Two passes: the mean, then the squared deviations from it, corrected for the
/// rounding of the mean.
/// Special  mean is NaN for no values, sd is NaN for fewer than two; both are
///          NaN if a value is not finite.
/// Source   Chan, Golub, LeVeque: Algorithms for Computing the Sample Variance,
///          The American Statistician 37 (1983), equation 1.7.
Summary Summarize(std::span<const double> values);

}  // namespace isoloss::stats
