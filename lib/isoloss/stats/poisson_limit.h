// Tells how large a count may be if its Poisson mean is known.
#pragma once

#include <cstdint>

namespace isoloss::stats {

/// Returns the smallest c with P(N > c) <= alpha for a Poisson N: a count above
/// c happens with probability of at most alpha.
/// Special  0 for mean 0.
/// Errors   ConfigError unless 0 <= mean <= 1e15 and 0 < alpha < 1.
int64_t PoissonUpperLimit(double mean, double alpha);

/// Returns P(N >= count) for a Poisson N, by the incomplete gamma function. So
/// neither a large mean nor a small result loses digits.
/// Special  1 for count 0; 0 for a positive count with mean 0.
/// Errors   ConfigError unless 0 <= mean <= 1e15 and count >= 0.
double PoissonPValue(int64_t count, double mean);

}  // namespace isoloss::stats
