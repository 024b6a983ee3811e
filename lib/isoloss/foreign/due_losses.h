// Finds the steps of a run that should have a loss and have none.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Appends to `steps` the steps of lines that were lost. Such steps are missing
/// between losses that follow each other at one distance before and after.
void AppendLost(const std::vector<int64_t>& with_loss,
                std::vector<int64_t>& steps);

/// Keeps those of `steps` at which a loss was due and is missing: between
/// losses, or right after the last one, at the losses' distance. Programs also
/// log a norm at each step and a loss at each tenth, and no loss for a skipped
/// update.
void KeepDue(const ForeignRun& run, std::vector<int64_t>& steps);

}  // namespace isoloss::foreign
