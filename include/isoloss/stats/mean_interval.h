// Computes the t interval of a mean.
#pragma once

#include "isoloss/stats/summary.h"

namespace isoloss::stats {

struct MeanInterval {
  double mean = 0;
  double lower = 0;
  double upper = 0;
};

/// Returns mean -+ t_{1-alpha,n-1} sd / sqrt(n), a confidence interval of level
/// 1 - 2 alpha if the values are independent and normal.
///
/// Special  infinite ends if n < 2; NaN if a value was not finite; a point if
///          the standard deviation is 0.
/// Errors   ConfigError unless 0 < alpha < 1.
MeanInterval IntervalOfMean(const Summary& summary, double alpha);

}  // namespace isoloss::stats
