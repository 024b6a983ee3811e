// Executes the experiment of a folder of goldens in another way, which must
// leave the same content.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/goldens/golden_folder.h"

namespace isoloss::goldens {

struct LaneResult {
  std::vector<compare::Run> runs;  ///< in the order of train::PlanRuns
  /// If there are no runs, this is the message of the program that failed.
  std::string fault;
};

/// Executes the experiment of `folder` as `lane` says, into `out`, and reads
/// the logs. A run that goes on after another step than the lane expects is a
/// fault.
LaneResult RunLane(const GoldenFolder& folder, const Lane& lane,
                   const std::filesystem::path& out);

/// Returns what the lane, which left `found`, should have left if one execution
/// left `runs`. The runs are the same but for /exchange, which ends with the
/// first mesh, and the nodes, which are those of the last mesh.
std::vector<compare::Run> ExpectedOfLane(
    const Lane& lane, std::vector<compare::Run> runs,
    const std::vector<compare::Run>& found);

}  // namespace isoloss::goldens
