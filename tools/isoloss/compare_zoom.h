// The step where two runs part, computed again and looked at element by
// element.
#pragma once

#include "experiment_arguments.h"
#include "isoloss/campaign/exit_code.h"
#include "isoloss/campaign/zoom.h"

namespace isoloss::cli {

using campaign::ExitCode;

struct ZoomArguments {
  bool zoom = false;
  campaign::ZoomPlan plan;

  void Declare(CLI::App& app);
};

/// Runs both sides of `comparison` from their nearest checkpoints up to the
/// first step that differs, or the one that was asked for, and compares all
/// that the chosen tensors hold (CompareDumpFiles). Without a difference and
/// without a step there is nothing to look at: exit code 0.
/// With `json` it prints the comparison of the logs then.
/// Errors   as campaign::DumpBothSides and CompareDumpFiles.
ExitCode Zoom(const campaign::LogComparison& comparison,
              const ZoomArguments& arguments, bool json);

}  // namespace isoloss::cli
