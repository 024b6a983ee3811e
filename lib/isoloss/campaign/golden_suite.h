// Executes the experiment of a folder of goldens in a further way, which must
// leave the same content.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/campaign/golden_folder.h"

namespace isoloss::campaign {

struct LaneResult {
  std::vector<compare::Run> runs;  ///< in the order of train::PlanRuns
  /// Why there are none: what the program said that failed.
  std::string fault;
};

/// Executes the experiment of `folder` as `lane` says, into `out`, and reads
/// the logs. A run that goes on behind another step than the lane expects is a
/// fault.
LaneResult RunLane(const GoldenFolder& folder, const Lane& lane,
                   const std::filesystem::path& out);

/// What the lane, which left `found`, had to leave where one execution left
/// `runs`: the same, but /exchange only up to where it goes on with another
/// mesh, and the nodes of the latter.
std::vector<compare::Run> ExpectedOfLane(
    const Lane& lane, std::vector<compare::Run> runs,
    const std::vector<compare::Run>& found);

}  // namespace isoloss::campaign
