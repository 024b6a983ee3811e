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
};

/// Leaves each log the steps that all have, and the columns of /steps and
/// evaluations that all have; an event of kind "import" says what was left out.
/// A log that ends before another one, by more than the distance of its steps,
/// is no longer complete. Logs are those of other programs, which hold steps.
/// Errors   ConfigError if they have no step in common, or no tokens to align
///          by.
void Align(std::span<runlog::RunLog* const> logs, const AlignOptions& options);

}  // namespace isoloss::foreign
