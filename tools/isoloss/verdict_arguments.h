// What `verify` and `gate` share: evidence that is given, and the verdict on
// the screen.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "ci_arguments.h"
#include "isoloss/campaign/evidence_files.h"
#include "isoloss/campaign/exit_code.h"
#include "isoloss/campaign/judge_arms.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::cli {

using campaign::ExitCode;

/// Options of a command that judges.
struct EvidenceArguments {
  std::vector<std::filesystem::path> probes;
  std::vector<std::filesystem::path> ensembles;

  void Declare(CLI::App& app);
  /// Errors   as runlog::ReadProbeLog and runlog::ReadEnsemble.
  campaign::EvidenceFiles Read() const;
};

/// By what limits a verdict is given.
struct PolicyArguments {
  std::filesystem::path file;
  std::optional<double> margin_percent;

  /// `in_place` ends the help of --policy: what the file replaces.
  void Declare(CLI::App& app, const std::string& in_place);
  /// `policy` with the margin that was given.
  /// Errors   as gate::WithMargin.
  gate::Policy Chosen(gate::Policy policy) const;
};

/// How a report is shown, and to whom else.
struct ReportArguments {
  bool ascii = false;
  bool verbose = false;
  bool json = false;
  CiArguments ci;

  /// `command` is its name. Returns --json.
  Option Declare(CLI::App& app, const std::string& command);
};

/// Writes the reports for CI systems that were asked for, `file` being what
/// they are about. Writes verdict.json to `folder` unless that is empty, and if
/// there are several candidates a verdict-ARM.json each, and report.html of
/// what was `judged`. Prints each verdict, in brief or with --verbose
/// in full, or with --json what verdict.json
/// holds; says on standard error where the files are. Returns the severest
/// outcome.
///
/// Errors   IoError if a verdict can't be written; ConfigError if an arm's name
///          can't be part of a file name.
ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const campaign::JudgedRuns& judged,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder,
                        const std::filesystem::path& file);

}  // namespace isoloss::cli
