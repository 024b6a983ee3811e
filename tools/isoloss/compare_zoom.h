// The step where two runs part, computed again and looked at element by
// element.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "compare_text.h"
#include "exit_code.h"
#include "experiment_command.h"

namespace isoloss::cli {

struct ZoomArguments {
  bool zoom = false;
  ExperimentSource source;
  std::vector<std::string> tensors;
  std::optional<int64_t> step;
  std::filesystem::path out;

  void Declare(CLI::App& app);
};

/// Runs both sides of `comparison` from their nearest checkpoints up to the
/// first step that differs, or the one that was asked for, and compares all
/// that the chosen tensors hold (CompareDumpFiles). Without a difference and
/// without a step there is nothing to look at: exit code 0.
/// With `json` it prints the comparison of the logs then.
/// Errors   as train::RunAgain and CompareDumpFiles; ConfigError if --out would
///          lie over the logs, or if the logs name all tensors and a pattern
///          matches none.
ExitCode Zoom(const LogComparison& comparison, const ZoomArguments& arguments,
              bool json);

}  // namespace isoloss::cli
