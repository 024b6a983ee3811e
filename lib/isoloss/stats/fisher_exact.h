// Compares two counts by Fisher's exact test.
#pragma once

#include <cstdint>

namespace isoloss::stats {

/// Returns the one-sided p-value of "events are more frequent in A than in B".
/// This is the probability of at least `events_a` events in A, given both
/// margins.
/// Special  1 if A or B has no trials.
/// Errors   ConfigError unless 0 <= events <= trials for both, and less than
///          2^31 trials in all.
/// Source   Fisher: Statistical Methods for Research Workers (1934), section
///          21.02. Boost.Math's hypergeometric distribution.
double FisherExactGreater(int64_t events_a, int64_t trials_a, int64_t events_b,
                          int64_t trials_b);

}  // namespace isoloss::stats
