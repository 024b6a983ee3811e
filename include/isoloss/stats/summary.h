// Computes sums, means and standard deviations that do not lose digits.
#pragma once

#include <cstdint>
#include <span>

namespace isoloss::stats {

/// Adds up with Neumaier's compensation. The error is that of one rounding plus
/// terms of order n * epsilon^2.
/// Special  0 for no values; NaN if a value is not finite.
/// Source   Neumaier, ZAMM 54 (1974), 39-51.
double Sum(std::span<const double> values);

/// Returns sum / count. Special: NaN for no values or if a value is not finite.
double Mean(std::span<const double> values);

/// Returns the median, and the upper one of an even number. There is a value,
/// and none is NaN.
double Median(std::span<const double> values);

/// A t interval needs to know this of a sample.
struct Summary {
  int64_t count = 0;
  double mean = 0;
  /// The sample standard deviation has the divisor count - 1.
  double sd = 0;
};

/// Computes the mean, then the squared deviations from it, corrected for the
/// rounding of the mean.
/// Special  mean is NaN for no values, sd is NaN for fewer than two; both are
///          NaN if a value is not finite.
/// Source   Chan, Golub, LeVeque: Algorithms for Computing the Sample Variance,
///          The American Statistician 37 (1983), equation 1.7.
Summary Summarize(std::span<const double> values);

}  // namespace isoloss::stats
