// Aligns the runs of other programs at the steps that they have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

enum class AlignBy {
  kStep,
  kTokens,  ///< if batches differ in size; all logs then get the first log's
            ///< steps
};

struct AlignOptions {
  AlignBy by = AlignBy::kStep;
  std::optional<int64_t> until = {};  ///< steps after it are left out
  /// The caller knows that batches differ, so what the logs tell of their
  /// batches is not compared.
  bool other_batches = false;
};

/// Leaves each log the steps, the columns of /steps and the evaluations that
/// all logs have. An event of kind "import" says what was left out. An event of
/// kind "nonfinite" names a loss or gradient norm that is no number. A log that
/// ends before another log, by more than the distance of its steps, is no
/// longer complete.
/// Requires logs of other programs, each with steps that ascend, a loss at each
///          step and columns of that length.
/// Errors   ConfigError if they share less than half of the steps of the
///          sparsest log, or not their end; if means are over intervals of
///          unequal length; if there are no tokens to align by.
void Align(std::span<runlog::RunLog* const> logs, const AlignOptions& options);

/// Leaves each log the steps and evaluations that all logs have, even if they
/// are few.
/// Requires the same as Align.
/// Errors   as of Align; ConfigError if they share no step.
void KeepSharedSteps(std::span<runlog::RunLog* const> logs);

}  // namespace isoloss::foreign
