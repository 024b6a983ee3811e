// Writes the sentences that a reader must know of a run before it is judged.
#pragma once

#include <string>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Warns of several attempts or ranks, which only repeated steps reveal. Such
/// warnings decide what a verdict on the series means.
std::vector<std::string> WarningsOf(const Series& series);

/// Reports on the run (ForeignRun::notes) and on each series with a known
/// quantity: missing and repeated steps, values that are not finite, means,
/// smoothing.
/// Requires Finish().
std::vector<std::string> FindingsOf(const ForeignRun& run);

}  // namespace isoloss::foreign
