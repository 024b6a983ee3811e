// Judges the logs of arms, and writes verdicts to files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/train/experiment.h"
#include "isoloss/verdicts/arm_roles.h"

namespace isoloss::verdicts {

/// Returns the policy of `file`. Without a file, it is the experiment's, with
/// its `gate.margin_percent`, else the default.
/// Errors   as gate::ReadPolicy and gate::WithMargin.
gate::Policy PolicyOf(const std::string& file,
                      const train::Experiment& experiment);

/// Returns the policy for a verdict on precision of isoloss' own runs. If it
/// chooses no margin, that is gate.margin_percent of `experiment_text`, or
/// gate::kOwnMarginPercent.
/// Errors   as gate::WithMargin.
gate::Policy ForPrecision(gate::Policy policy,
                          const std::string& experiment_text);

/// Returns that policy for the experiments of all these runs.
/// Errors   also ConfigError naming two runs whose experiments choose other
///          margins.
gate::Policy ForPrecision(gate::Policy policy,
                          const std::vector<compare::Run>& runs);

/// Judges every candidate in `runs` against `baseline_arm`, beside null arms
/// and the control (RolesOf).
/// Errors   ConfigError if either side has no run; as RolesOf and
///          logs::CheckEvidenceIsUsed.
std::vector<gate::Judgement> JudgeArms(
    const std::vector<compare::Run>& runs, const std::string& baseline_arm,
    const gate::Policy& policy, const logs::EvidenceFiles& evidence = {},
    const std::optional<std::string>& control = {});

/// Judges arms whose roles are known. An arm with two roles is not judged
/// beside itself.
std::vector<gate::Judgement> JudgeRoles(const std::vector<compare::Run>& runs,
                                        const std::string& baseline_arm,
                                        const ArmRoles& roles,
                                        const gate::Policy& policy,
                                        const logs::EvidenceFiles& evidence);

/// Judges each arm in `runs` against the arm of the same name in `approved`.
/// The question is regression, whatever the policy says.
/// Errors   ConfigError if an arm has no approved run; as
/// logs::CheckEvidenceIsUsed.
std::vector<gate::Judgement> JudgeAgainstApproved(
    const std::vector<compare::Run>& runs,
    const std::vector<compare::Run>& approved, gate::Policy policy,
    const logs::EvidenceFiles& evidence = {});

/// Checks that RemoveVerdicts can be called.
/// Errors   ConfigError if RemoveVerdicts would remove what is no verdict.
void CheckVerdicts(const train::Experiment& experiment,
                   const std::filesystem::path& folder);

/// Removes what WriteVerdicts wrote to `folder` for any of these arms, alone or
/// with other arms. A verdict must not stand beside logs that it does not
/// cover. Call CheckVerdicts first.
/// Errors   IoError if a file can't be removed.
void RemoveVerdicts(const train::Experiment& experiment,
                    const std::filesystem::path& folder);

/// With several candidates this file holds all verdicts.
inline constexpr const char* kVerdictFile = "verdict.json";
inline constexpr const char* kReportFile = "report.html";

/// Returns the files verdict-ARM.json of a folder, by name.
std::vector<std::filesystem::path> VerdictsIn(
    const std::filesystem::path& folder);

/// The page beside a verdict shows the runs and evidence that were judged.
struct JudgedRuns {
  std::vector<compare::Run> runs = {};
  std::vector<compare::Run> approved = {};
  logs::EvidenceFiles evidence = {};
};

/// Writes verdict.json to `folder`, which is made if need be, verdict-ARM.json
/// for each of several candidates, and then report.html. Returns the names of
/// the files.
/// Errors   IoError if a verdict can't be written; ConfigError if an arm's name
///          can't be part of a file name, or a file is there and no verdict.
std::vector<std::string> WriteVerdicts(
    const std::vector<gate::Judgement>& judgements, const JudgedRuns& judged,
    const std::filesystem::path& folder);

}  // namespace isoloss::verdicts
