// Computes an interval of the ratio of two means that were measured on the same
// units.
#pragma once

#include <optional>
#include <span>

namespace isoloss::stats {

struct RatioInterval {
  double lower = 0;
  double upper = 0;
};

/// Returns the confidence interval of level 1 - 2 alpha for mean(y) / mean(x)
/// of n paired values. It has all r for which t tests at level alpha on both
/// sides do not reject that y_i - r x_i has the mean 0:
///   (my - r mx)^2 <= t^2 / n (syy - 2 r sxy + r^2 sxx),  t = t_{1-alpha,n-1}.
/// It is exact for pairs that are jointly normal, whatever their correlation,
/// since the divisor's uncertainty counts. A margin M of the ratio lies outside
/// the interval iff the t test of y_i - M x_i rejects. So the interval is that
/// of two one-sided tests.
///
/// Special  Empty if n < 2, if a value is not finite, or if the interval of
///          mean(x) at the same level holds 0: then the set is not bounded.
/// Errors   ConfigError unless 0 < alpha < 1 and the samples are equally long.
/// Source   Fieller, J. R. Stat. Soc. B 16 (1954), 175-185.
std::optional<RatioInterval> FiellerInterval(std::span<const double> y,
                                             std::span<const double> x,
                                             double alpha);

}  // namespace isoloss::stats
