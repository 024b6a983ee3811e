// Judges probes of runs that another program trained: the findings of isoloss
// check-tensors in the operations that were recorded. No graph, case or build
// says which operations there should be, so a verdict lists those that were
// looked at.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Works as Mismatches() for a probe and a run that are not both isoloss' own.
/// It compares the recipe, the initial weights where both record them, and at
/// least one loss of a step. A loss agrees within half a unit of the run log's
/// last digit and 2^-20 of itself, since a trainer may add up the losses of
/// ranks in its own way.
std::vector<std::string> ForeignMismatches(const Probe& probe,
                                           const compare::Run& run);

/// Works as ProbeGaps() for such a probe: it finds rows that contradict each
/// other.
std::vector<std::string> ForeignGaps(const runlog::ProbeLog& log);

/// Returns the steps whose operations were compared.
std::set<int64_t> StepsLookedAt(const runlog::ProbeLog& log);

/// Returns a check of a regression if the probe lacks the parting. It must
/// have the first step whose losses differ, or the step before it, which has
/// updated its weights.
std::optional<Check> MissesParting(const Probe& probe,
                                   const compare::SeedPair& pair);

/// Says what was looked at: operations, tensors, elements and steps, and no
/// more. Empty if no probe is of another program.
std::optional<Check> ForeignScope(const Probes& probes);

}  // namespace isoloss::gate
