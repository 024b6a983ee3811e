// Checks whether a probe log holds all that level L2 needs. Absent values
// would otherwise count as right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/policy.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::gate {

/// Case plain holds the run's own steps.
inline constexpr std::string_view kPlainCase = "plain";

/// Says why a probe is not whole: tensors, rows or counts are absent or
/// contradict each other. Each step must compare every tensor of the log's own
/// graph. Empty if the probe is whole.
std::vector<std::string> ProbeGaps(const runlog::ProbeLog& log);

/// Names the later recipes of a run that changes its recipe of which no case
/// looked at two steps (one, if the run has one).
std::vector<std::string> UnprobedPhases(const runlog::ProbeLog& log);

/// Returns UnprobedPhases and the cases that the policy asks for but the log
/// lacks, or holds for fewer than two steps (one, if the run has one). A stale
/// state shows in the second step. Cases but `plain` must have such steps of
/// each recipe.
std::vector<std::string> MissingCases(const runlog::ProbeLog& log,
                                      const Policy& policy);

/// Returns how many steps of case plain a regression needs. It is 0 between
/// runs of equal bits: then the steps that MissingCases asks for suffice.
/// Otherwise the steps go up to the first difference, and there are at least
/// policy.parted_steps. A harmless change that lets runs part early may hide a
/// bug that comes later. All steps are needed if they are fewer, or if only
/// the final weights differ.
int64_t PlainStepsDue(const runlog::RunLog& approved,
                      const runlog::RunLog& judged, const Policy& policy);

}  // namespace isoloss::gate
