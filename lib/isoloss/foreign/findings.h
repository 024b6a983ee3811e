// What one must know of a run before it is judged, in whole sentences.
#pragma once

#include <string>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Differences between independent values around a slow trend have the
/// correlation -1/2. Above this one a series counts as smoothed: an exponential
/// mean with a weight of 0.6 or more on the past, or a moving mean of 3. Above
/// it by chance: at most 5 in 10 000 series of independent values, for it lies
/// four standard errors beyond -1/2 where few values make those large.
double SmoothedFrom(const DifferenceCorrelation& correlation);

/// Does the series move as if it were smoothed? Never of fewer than 51 values.
bool LooksSmoothed(const Series& series);

/// Whether LooksSmoothed could say so of an exponential mean with a weight of
/// 0.9: from 80 values on.
bool CanTellSmoothing(const Series& series);

/// What is known of the series' values only by how often its steps occur, and
/// decides what a verdict on them means: several attempts, ranks.
std::vector<std::string> WarningsOf(const Series& series);

/// Of the run (ForeignRun::notes) and of each series with a known quantity:
/// missing and repeated steps, values that are not finite, means, smoothing.
/// Requires Finish().
std::vector<std::string> FindingsOf(const ForeignRun& run);

}  // namespace isoloss::foreign
