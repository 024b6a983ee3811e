// Computes exact confidence limits of a probability from a count of successes.
#pragma once

#include <cstdint>

namespace isoloss::stats {

struct BinomialInterval {
  double lower = 0;
  double upper = 1;
};

/// Returns Clopper and Pearson's two-sided interval; each end is missed with a
/// probability of (1 - confidence) / 2. Its coverage is never below
/// `confidence`, and mostly above.
/// Special  [0, 1] for no trials; 0 or 1 exactly at an end that the count
///          touches.
/// Errors   ConfigError unless 0 <= successes <= trials and 0 < confidence < 1.
/// Source   Clopper, Pearson, Biometrika 26 (1934), 404-413.
BinomialInterval ClopperPearson(int64_t successes, int64_t trials,
                                double confidence);

/// Returns a limit that the probability is below with at least `confidence`.
/// Special and Errors as above.
double BinomialUpperBound(int64_t successes, int64_t trials, double confidence);

}  // namespace isoloss::stats
