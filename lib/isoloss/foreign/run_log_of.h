// Converts another program's run into a run log, which all judges read.
#pragma once

#include <string>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

/// Returns the run's training loss at each step that has one, its further
/// quantities at those steps, and its evaluations. A quantity that lacks a
/// value at one of the steps is left out. Steps that begin with 0 are counted
/// from 1. What the log does not tell is empty, 0, or NaN for a number that may
/// be unknown. Findings on the losses become events of kind "import". The
/// caller sets arm and seed.
/// Requires Finish().
/// Errors   FormatError if no series is a training loss; the message does not
///          name the file.
runlog::RunLog RunLogOf(const ForeignRun& run);

/// Splits a name: "fp8-seed3" is seed 3 of "fp8". If the name has no seed,
/// `seed` is -1 and `arm` is the whole name.
struct ArmAndSeed {
  std::string arm;
  int64_t seed = -1;
};
ArmAndSeed SplitName(const std::string& name);

}  // namespace isoloss::foreign
