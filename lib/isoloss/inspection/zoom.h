// Looks into two runs at the step where they part: runs both again up to it,
// and stores their tensors whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/inspection/log_comparison.h"

namespace isoloss::inspection {

struct ZoomPlan {
  campaign::ExperimentSource source;      ///< of both logs
  std::vector<std::string> tensors = {};  ///< patterns; {}: all
  /// If there is none, it is the first step that differs.
  std::optional<int64_t> step = std::nullopt;
  std::filesystem::path out = {};  ///< "": zoom beside the first log
};

/// Runs both sides of `comparison` from their nearest checkpoints and returns
/// the dumps of A and B; empty if a signal came. Needs `step`, or a comparison
/// that found a difference.
/// Errors   as train::RunAgain; ConfigError if the dumps would overwrite the
///          logs.
std::optional<std::pair<std::filesystem::path, std::filesystem::path>>
DumpBothSides(const LogComparison& comparison, const ZoomPlan& plan);

/// Refuses patterns that would find nothing.
/// Errors   ConfigError for a pattern that none of the logs' tensors matches,
///          if the logs name all.
void CheckPatterns(const LogComparison& comparison,
                   const std::vector<std::string>& patterns);

}  // namespace isoloss::inspection
