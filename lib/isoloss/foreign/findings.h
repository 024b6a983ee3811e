// What one must know of a run before it is judged, in whole sentences.
#pragma once

#include <string>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// What is known of the series' values only by how often its steps occur, and
/// decides what a verdict on them means: several attempts, ranks.
std::vector<std::string> WarningsOf(const Series& series);

/// Of the run (ForeignRun::notes) and of each series with a known quantity:
/// missing and repeated steps, values that are not finite, means, smoothing.
/// Requires Finish().
std::vector<std::string> FindingsOf(const ForeignRun& run);

}  // namespace isoloss::foreign
