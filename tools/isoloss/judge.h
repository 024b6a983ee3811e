// What `verify` and `gate` share: from logs on disk to a verdict on the screen.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "evidence_files.h"
#include "exit_code.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/report/chart.h"
#include "isoloss/train/experiment.h"
#include "log_files.h"

namespace isoloss::cli {

/// How a report is shown.
struct ReportArguments {
  bool ascii = false;
  bool json = false;

  void Declare(CLI::App& app);
  /// Width and colours of standard output.
  report::TextStyle Style() const;
};

/// That of `file`, or else the experiment's, or else the default.
/// Errors   as gate::ReadPolicy.
gate::Policy PolicyOf(const std::string& file,
                      const train::Experiment& experiment);

/// Judges every other arm in `runs` against `baseline_arm`.
/// Errors   ConfigError if either side has no run; as CheckEvidenceIsUsed.
std::vector<gate::Judgement> JudgeArms(const std::vector<compare::Run>& runs,
                                       const std::string& baseline_arm,
                                       const gate::Policy& policy,
                                       const EvidenceFiles& evidence = {});

/// Judges each arm in `runs` against the arm of the same name in `approved`:
/// the question is regression, whatever the policy says.
/// Errors   ConfigError if an arm has no approved run; as CheckEvidenceIsUsed.
std::vector<gate::Judgement> JudgeAgainstApproved(
    const std::vector<compare::Run>& runs,
    const std::vector<compare::Run>& approved, gate::Policy policy,
    const EvidenceFiles& evidence = {});

/// Errors   ConfigError if RemoveVerdicts would remove what is no verdict.
void CheckVerdicts(const train::Experiment& experiment,
                   const std::filesystem::path& folder);

/// Removes what ReportVerdicts wrote to `folder` for any of these arms, alone
/// or beside others: a verdict must not stand beside logs that it was not given
/// on.
/// Errors   as CheckVerdicts; IoError if a file can't be removed.
void RemoveVerdicts(const train::Experiment& experiment,
                    const std::filesystem::path& folder);

/// Writes verdict.json to `folder` unless that is empty, and if there are
/// several candidates a verdict-ARM.json each. Prints each report, or with
/// --json what verdict.json holds; says on standard error where the files are.
/// Returns the severest outcome.
/// Errors   IoError if a verdict can't be written; ConfigError if an arm's name
///          can't be part of a file name.
ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder);

}  // namespace isoloss::cli
