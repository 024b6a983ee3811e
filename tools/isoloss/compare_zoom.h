// Computes the first step that differs between two runs again, and compares it
// element by element.
#pragma once

#include "experiment_arguments.h"
#include "isoloss/inspection/zoom.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::cli {

using system::ExitCode;

struct ZoomArguments {
  bool zoom = false;
  inspection::ZoomPlan plan;

  void Declare(CLI::App& app);
};

/// Runs both sides of `comparison` from their nearest checkpoints and compares
/// all that the chosen tensors hold (CompareDumpFiles). The step is the one
/// that was asked for, else the first that differs. Without either there is
/// nothing to compare: the exit code is 0, and with `json` the comparison of
/// the logs is printed.
/// Errors   as inspection::DumpBothSides and CompareDumpFiles.
ExitCode Zoom(const inspection::LogComparison& comparison,
              const ZoomArguments& arguments, bool json);

}  // namespace isoloss::cli
