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

/// Judges every other arm in `runs` against `baseline_arm` and prints each
/// report, or one JSON object per arm with --json. Writes verdict.json (with
/// one candidate arm; verdict-ARM.json with several) to `folder` unless that is
/// empty. Returns the severest outcome.
ExitCode JudgeAndReport(const std::vector<compare::Run>& runs,
                        const std::string& baseline_arm,
                        const gate::Policy& policy,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder);

}  // namespace isoloss::cli
