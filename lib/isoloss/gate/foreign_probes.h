// Probes of runs that another program trained: what isoloss check-tensors found
// in operations that it recorded. There is no graph, no case and no build that
// says what should be in them, so that a verdict says what was looked at.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// As Mismatches() of a probe and a run that are not both isoloss' own: recipe,
/// initial weights where both tell them, and at least one loss of a step. It
/// agrees within half a unit of the run log's last digit and 2^-20 of itself,
/// since a trainer may add up the losses of ranks in its own way.
std::vector<std::string> ForeignMismatches(const Probe& probe,
                                           const compare::Run& run);

/// As ProbeGaps() of such a probe: rows that contradict each other.
std::vector<std::string> ForeignGaps(const runlog::ProbeLog& log);

/// Steps whose operations were compared.
std::set<int64_t> StepsLookedAt(const runlog::ProbeLog& log);

/// For a regression: nothing, if the probe has the first step whose losses
/// differ, or the one before it, which has updated its weights.
std::optional<Check> MissesParting(const Probe& probe,
                                   const compare::SeedPair& pair);

/// What was looked at: operations, tensors, elements and steps, and no more.
/// Nothing if no probe is of another program.
std::optional<Check> ForeignScope(const Probes& probes);

}  // namespace isoloss::gate
