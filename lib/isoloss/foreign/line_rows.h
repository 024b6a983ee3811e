// Helps readers of lines whose steps are known only at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Puts the steps of rows in place of their numbers: each value of `run` was
/// added with the number of its row, from 0 on, for a step. Values of a row
/// whose step is negative are removed.
void SetSteps(const std::vector<int64_t>& step_of_row, ForeignRun& run);

/// Returns whether printed steps of training, in their order, count from 0: the
/// first is 0, or all are the last of as many (9, 19, 29, ...).
bool CountsFromZero(const std::vector<int64_t>& steps);

}  // namespace isoloss::foreign
