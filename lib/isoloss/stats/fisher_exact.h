// Fisher's exact test of two counts.
#pragma once

#include <cstdint>

namespace isoloss::stats {

/// One-sided p-value of "events are more frequent in A than in B": the
/// probability, given both margins, of at least so many events in A.
/// Special  1 if one of both has no trials.
/// Errors   ConfigError unless 0 <= events <= trials for both, and less than
///          2^31 trials in all.
/// Source   Fisher: Statistical Methods for Research Workers (1934), section
///          21.02. Boost.Math's hypergeometric distribution.
double FisherExactGreater(int64_t events_a, int64_t trials_a, int64_t events_b,
                          int64_t trials_b);

}  // namespace isoloss::stats
