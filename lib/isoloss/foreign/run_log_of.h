// Another program's run as a run log, which all judges read.
#pragma once

#include <string>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

/// The run's training loss at each step that has one, what else it tells of
/// those steps, and its evaluations. A quantity that lacks a value at one of
/// them is left out. Steps that begin with 0 count from 1 then. What the log
/// does not tell stays empty, 0, or NaN where that says unknown; findings on
/// the losses become events of kind "import". Arm and seed are the caller's.
/// Requires Finish().
/// Errors   FormatError if no series is a training loss; the message does not
///          name the file.
runlog::RunLog RunLogOf(const ForeignRun& run);

/// What a name says: "fp8-seed3" is seed 3 of "fp8". `seed` is -1 if it says
/// none, and `arm` the whole name then.
struct ArmAndSeed {
  std::string arm;
  int64_t seed = -1;
};
ArmAndSeed SplitName(const std::string& name);

}  // namespace isoloss::foreign
