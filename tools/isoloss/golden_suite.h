// Executes the experiment of a folder of goldens in a further way, which must
// leave the same content.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "golden_folder.h"

namespace isoloss::cli {

struct LaneResult {
  std::vector<compare::Run> runs;  ///< in the order of train::PlanRuns
  /// Why there are none: what the program said that failed.
  std::string fault;
};

/// Executes the experiment of `folder` as `lane` says, into `out`, and reads
/// the logs.
LaneResult RunLane(const GoldenFolder& folder, const Lane& lane,
                   const std::filesystem::path& out);

}  // namespace isoloss::cli
