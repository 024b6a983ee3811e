// Forecasts the memory that a probe takes, so that none starts that can't end.
#pragma once

#include "isoloss/step_checks/probe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::step_checks {

/// Returns the bytes of all tensors that a step announces and a StepRecord
/// keeps. Rows that pad experts' lists are left out.
double EstimatedRecordBytes(const train::Experiment& experiment);

/// Returns the host's bytes that ProbeArm takes, about. They are those of the
/// run, of its record, of the oracle's moments and of the operands of the
/// products that are being checked. A comparison with a reference takes two
/// runs with a record each. `experiment` must compute whole batches.
double EstimatedProbeBytes(const train::Experiment& experiment,
                           const train::Arm& arm, const ProbeOptions& options);

/// Refuses probes that this machine's memory can't hold, `side_by_side` at a
/// time.
/// Errors   ConfigError.
void CheckProbeMemory(const train::Experiment& experiment,
                      const train::Arm& arm, const ProbeOptions& options,
                      int side_by_side);

}  // namespace isoloss::step_checks
