// What several runs of other programs have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

enum class AlignBy {
  kStep,
  kTokens,  ///< where batches differ in size; steps are the first run's then
};

struct AlignOptions {
  AlignBy by = AlignBy::kStep;
  std::optional<int64_t> until = {};  ///< steps after it are left out
  /// Whoever aligns knows that batches differ: what the logs tell of them is
  /// not held against each other.
  bool other_batches = false;
};

/// Leaves each log the steps that all have, and the columns of /steps and
/// evaluations that all have; an event of kind "import" says what was left out,
/// one of kind "nonfinite" where a loss or gradient norm was no number. A log
/// that ends before another one, by more than the distance of its steps, is no
/// longer complete.
/// Requires logs of other programs, each with steps that ascend, a loss at each
///          and columns as long.
/// Errors   ConfigError if they share less than half of the steps of the
///          sparsest log, or not their end; if means are over intervals of
///          unequal length; if there are no tokens to align by.
void Align(std::span<runlog::RunLog* const> logs, const AlignOptions& options);

/// Leaves each log the steps and evaluations that all have, be they few.
/// Requires and errors as of Align; ConfigError if they share no step.
void KeepSharedSteps(std::span<runlog::RunLog* const> logs);

}  // namespace isoloss::foreign
