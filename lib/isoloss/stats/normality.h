// Tests whether a sample looks normal.
#pragma once

#include <span>

namespace isoloss::stats {

struct NormalityTest {
  /// This is Anderson and Darling's A^2 for estimated mean and variance, with
  /// Stephens' factor 1 + 0.75 / n + 2.25 / n^2.
  double statistic = 0;
  /// Normal values have a larger statistic with this probability, to about
  /// 0.002.
  double p_value = 1;
};

/// A small p-value speaks against normality. A large one says little for few
/// values: it is a figure to report, not a licence.
/// Special  Values that are all equal, or an outlier beyond what the normal
///          distribution function resolves, give an infinite statistic and
///          p 0.
/// Errors   ConfigError for fewer than 8 values (the p-value formula's range)
///          or one that is not finite.
/// Source   Stephens, chapter 4 of D'Agostino, Stephens: Goodness-of-Fit
///          Techniques (1986), table 4.9.
NormalityTest AndersonDarling(std::span<const double> values);

}  // namespace isoloss::stats
