// Tells whether a series was smoothed before it was logged.
#pragma once

#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Autocorrelations of the differences between neighbouring values, in the
/// later half of a series, with a parabola removed. If they are smaller without
/// the jumps of a spike, hump or step, the smaller ones count. Independent
/// values around a slow trend give -1/2 at lag 1 and 0 beyond. An exponential
/// mean with weight w on the past gives -(1 - w) w^(k - 1) / 2 at lag k; a
/// moving mean of n values gives 0 before lag n. Batches that resemble their
/// neighbours act like an exponential mean, with their correlation as w.
struct DifferenceCorrelation {
  double value = 0;  ///< at lag 1; NaN if fewer than 50 differences are finite
  /// Standard error of `value` for independent values: Bartlett's formula gives
  /// 1/sqrt(2 m) for m differences that correlate by -1/2 with the next one and
  /// by 0 with later ones.
  double standard_error = 0;
  double sum_of_three = 0;  ///< of lags 1 to 3
  /// This is the least sum of lags 1 to k, for k up to 8. No mean brings it
  /// below -1/2, but a periodic pattern does.
  double least_sum = 0;
};
DifferenceCorrelation CorrelationOfDifferences(
    const std::vector<double>& values);

/// Returns the correlation above which a series may be smoothed; differences
/// between independent values around a slow trend have -1/2. By chance, at most
/// 5 in 10 000 series of independent values exceed this limit. With few values,
/// it lies four standard errors above -1/2.
double SmoothedFrom(const DifferenceCorrelation& correlation);

/// Returns whether the series moves as if it were smoothed: by an exponential
/// mean with a weight of 0.8 or more on the past, or a moving mean of 4 values
/// or more. Batches that correlate by 0.5 with their neighbours, spikes, and a
/// pattern of up to 16 steps that repeats do not move so. Fewer than 51 values
/// never look smoothed.
bool LooksSmoothed(const Series& series);

/// Returns whether LooksSmoothed could detect an exponential mean with a weight
/// of 0.9: from 80 values on.
bool CanTellSmoothing(const Series& series);

}  // namespace isoloss::foreign
