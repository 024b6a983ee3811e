// Tests whether paired samples are equivalent within a margin, by two one-sided
// t tests (TOST).
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/stats/summary.h"

namespace isoloss::stats {

struct EquivalenceOptions {
  /// Differences within (-margin, margin) are of no concern. The margin has the
  /// unit of the differences; > 0.
  double margin = 0;
  /// The probability of declaring equivalence if the true mean lies on the
  /// margin is at most alpha, in (0, 0.5).
  double alpha = 0.05;
  /// RequiredPairs computes the pairs for this probability of success, in (0.5,
  /// 1).
  double power = 0.8;
  /// Only differences above +margin are of concern.
  bool one_sided = false;
};

enum class Equivalence {
  kInside,     ///< the whole interval lies inside the margin
  kOutside,    ///< the whole interval lies outside the margin
  kUndecided,  ///< the interval crosses the margin, or there is none
};

struct EquivalenceResult {
  Equivalence outcome = Equivalence::kUndecided;
  /// The interval is that of IntervalOfMean.
  double lower = 0;
  double upper = 0;
};

/// Returns where an interval lies. Two-sided: it is inside iff it is within
/// (-m, m), and outside iff it does not meet it. One-sided: it is inside iff
/// upper < m, and outside iff lower >= m. Special: undecided if an end is NaN.
Equivalence WhereIs(double lower, double upper,
                    const EquivalenceOptions& options);

/// Decides whether the mean of n paired differences lies within the margin.
///
/// The place of the interval decides (WhereIs). Both tests must reject at level
/// alpha each, so alpha needs no correction.
///
/// Special  n < 2 or a mean that is not finite is undecided. A standard
///          deviation of 0 makes the interval a point.
/// Errors   ConfigError if an option is out of its range.
/// Source   Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987), 657-680.
EquivalenceResult TestEquivalence(const Summary& differences,
                                  const EquivalenceOptions& options);

/// Returns the smallest n >= 2 for which the test of n pairs is kInside with
/// probability options.power or more. It takes the mean and standard deviation
/// of `differences` for the true ones (PairsForPower, power.h). They are
/// estimates, so the number is as uncertain as they are.
///
/// For a power of 0.7 or more it exceeds the number of pairs of any test that
/// was undecided. At the same n, such a test would pass with less than 0.7.
///
/// Special  Empty if the mean or the standard deviation is unknown (n < 2) or
///          not finite, or if no number up to a million suffices, as when
///          |mean| >= margin (one-sided: mean >= margin).
/// Errors   ConfigError if an option is out of its range.
std::optional<int64_t> RequiredPairs(const Summary& differences,
                                     const EquivalenceOptions& options);

/// Verifies the options of both functions.
/// Errors   ConfigError if an option is out of its range.
void CheckEquivalenceOptions(const EquivalenceOptions& options);

}  // namespace isoloss::stats
