// Was a series smoothed before it was logged?
#pragma once

#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Autocorrelations of the differences between values that follow each other,
/// of the later half of a series, a parabola removed; or those without the
/// jumps of a spike, hump or step, where they are smaller. Independent values
/// around a slow trend give -1/2 at lag 1 and 0 beyond. An exponential mean
/// with weight w on the past gives -(1 - w) w^(k - 1) / 2 at lag k, a moving
/// mean of n values 0 before lag n. So do batches that resemble their
/// neighbours: w is then their correlation.
struct DifferenceCorrelation {
  double value = 0;  ///< at lag 1; NaN if fewer than 50 differences are finite
  /// Of `value`, for independent values: Bartlett's formula gives 1/sqrt(2 m)
  /// for m differences that correlate by -1/2 with the next and not beyond.
  double standard_error = 0;
  double sum_of_three = 0;  ///< of lags 1 to 3
  /// The least sum of lags 1 to k, for k up to 8. No mean brings it below -1/2,
  /// but what comes and goes does.
  double least_sum = 0;
};
DifferenceCorrelation CorrelationOfDifferences(
    const std::vector<double>& values);

/// Differences between independent values around a slow trend have the
/// correlation -1/2. Above this one a series may be smoothed. Above it by
/// chance: at most 5 in 10 000 series of independent values, for it lies four
/// standard errors beyond -1/2 where few values make those large.
double SmoothedFrom(const DifferenceCorrelation& correlation);

/// Does the series move as if it were smoothed: by an exponential mean with a
/// weight of 0.8 or more on the past, or a moving mean of 4 or more? Batches
/// that correlate by 0.5 with their neighbours move otherwise, and so do
/// spikes, and a pattern of up to 16 steps that comes again and again. Never of
/// fewer than 51 values.
bool LooksSmoothed(const Series& series);

/// Whether LooksSmoothed could say so of an exponential mean with a weight of
/// 0.9: from 80 values on.
bool CanTellSmoothing(const Series& series);

}  // namespace isoloss::foreign
