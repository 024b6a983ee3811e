// Steps of a run that should have a loss and have none.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Steps that are missing between losses which stand at one distance before and
/// after: lines that were lost.
void AppendLost(const std::vector<int64_t>& with_loss,
                std::vector<int64_t>& steps);

/// Of steps without a loss keeps those at which one was due: between losses, or
/// right after the last, at their distance. Programs also log a norm at each
/// step and a loss at each tenth, and no loss of an update that was skipped.
void KeepDue(const ForeignRun& run, std::vector<int64_t>& steps);

}  // namespace isoloss::foreign
