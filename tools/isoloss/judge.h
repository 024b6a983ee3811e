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

/// As ReadRuns; a folder stands for the run logs in it: no probes, dumps,
/// ensembles or partial logs.
/// Errors   as ReadRuns, so that a damaged log is never passed over;
///          ConfigError if a folder holds none.
std::vector<compare::Run> ReadRunsIn(
    const std::vector<std::filesystem::path>& paths);

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

/// Removes what ReportVerdicts wrote to `folder` for these candidate arms.
/// Errors   IoError if a file is there and can't be removed.
void RemoveVerdicts(const std::vector<std::string>& candidates,
                    const std::filesystem::path& folder);

/// Writes verdict.json (verdict-ARM.json if there are several) to `folder`
/// unless that is empty, then prints each report, or with --json one array of
/// the same objects. Returns the severest outcome.
/// Errors   IoError if a verdict can't be written; ConfigError if an arm's name
///          can't be part of a file name.
ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder);

}  // namespace isoloss::cli
