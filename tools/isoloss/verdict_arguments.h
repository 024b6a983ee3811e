// Declares what `verify` and `gate` share: options for evidence, and the output
// of verdicts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "ci_arguments.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/system/exit_code.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::cli {

using system::ExitCode;

/// These are options of a command that judges.
struct EvidenceArguments {
  std::vector<std::filesystem::path> probes;
  std::vector<std::filesystem::path> ensembles;

  void Declare(CLI::App& app);
  /// Reads the files of evidence.
  /// Errors   as runlog::ReadProbeLog and runlog::ReadEnsemble.
  logs::EvidenceFiles Read() const;
};

/// These options set the limits of a verdict.
struct PolicyArguments {
  std::filesystem::path file;
  std::optional<double> margin_percent;

  /// `in_place` ends the help of --policy: it says what the file replaces.
  void Declare(CLI::App& app, const std::string& in_place);
  /// Returns `policy` with the margin that was given.
  /// Errors   as gate::WithMargin.
  gate::Policy Chosen(gate::Policy policy) const;
};

/// These options say in which forms a report is written.
struct ReportArguments {
  bool ascii = false;
  bool verbose = false;
  bool json = false;
  CiArguments ci;

  /// `command` is the name of the command. Returns --json.
  Option Declare(CLI::App& app, const std::string& command);
};

/// Writes the reports for CI systems that were asked for; they are about
/// `file`. Unless `folder` is empty, writes to it verdict.json,
/// verdict-ARM.json for each of several candidates, and report.html of what was
/// `judged`. Prints each verdict in brief, in full with --verbose, or as
/// verdict.json holds it with --json. Standard error names the files. Returns
/// the severest outcome.
///
/// Errors   IoError if a verdict can't be written; ConfigError if an arm's name
///          can't be part of a file name.
ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const verdicts::JudgedRuns& judged,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder,
                        const std::filesystem::path& file);

/// Reports a command that was not to judge, for the reason `why`: the reports
/// for CI systems have one case, which is skipped, and --json prints
/// {"judged": false, ...}. Does nothing unless this process speaks for the job.
ExitCode ReportUnjudged(const std::string& why,
                        const ReportArguments& arguments);

}  // namespace isoloss::cli
