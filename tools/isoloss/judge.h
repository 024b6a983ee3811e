// What `verify` and `gate` share: from logs on disk to a verdict on the screen.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "exit_code.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/report/chart.h"

namespace isoloss::cli {

/// How a report is shown.
struct ReportArguments {
  bool ascii = false;
  bool json = false;

  void Declare(CLI::App& app);
  /// Width and colours of standard output.
  report::TextStyle Style() const;
};

/// Errors   as runlog::ReadRunLog.
std::vector<compare::Run> ReadRuns(
    const std::vector<std::filesystem::path>& files);

/// Removes what JudgeAndReport wrote to `folder` for these candidate arms.
/// Errors   IoError if a file is there and can't be removed.
void RemoveVerdicts(const std::vector<std::string>& candidates,
                    const std::filesystem::path& folder);

/// Judges every other arm in `runs` against `baseline_arm`. Writes verdict.json
/// (with one candidate arm; verdict-ARM.json with several) to `folder` unless
/// that is empty, then prints each report, or with --json one array of the same
/// objects. Returns the severest outcome.
/// Errors   ConfigError if either side has no run; IoError if a verdict can't
///          be written.
ExitCode JudgeAndReport(const std::vector<compare::Run>& runs,
                        const std::string& baseline_arm,
                        const gate::Policy& policy,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder);

}  // namespace isoloss::cli
