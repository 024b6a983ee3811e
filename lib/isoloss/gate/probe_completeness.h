// Whether a probe log holds all that level L2 needs: what is absent would
// otherwise count as right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/policy.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::gate {

/// The case of the run's own steps.
inline constexpr std::string_view kPlainCase = "plain";

/// What makes a probe no whole one: tensors, rows or counts that are absent or
/// contradict each other: each step must compare every tensor of the log's own
/// graph. Empty if it is whole.
std::vector<std::string> ProbeGaps(const runlog::ProbeLog& log);

/// Cases that the policy asks for and the log lacks, or holds for fewer than
/// two steps (one, if the run has one): a stale state shows in the second.
std::vector<std::string> MissingCases(const runlog::ProbeLog& log,
                                      const Policy& policy);

/// Steps of case plain that a regression needs: none more than MissingCases
/// asks for (0) between runs of equal bits. Otherwise up to where they differ
/// first, and policy.parted_steps at least: a harmless change that lets them
/// part early may hide a bug that comes later. All steps, if that is fewer or
/// if only the final weights differ.
int64_t PlainStepsDue(const runlog::RunLog& approved,
                      const runlog::RunLog& judged, const Policy& policy);

}  // namespace isoloss::gate
