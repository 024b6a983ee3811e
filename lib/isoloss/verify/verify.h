// Leads from an experiment to its verdicts: trains the arms, has the oracle
// probe them, and judges.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::verify {

struct VerifyPlan {
  train::Experiment experiment;
  std::filesystem::path folder = {};  ///< of logs, probes and verdicts
  gate::Policy policy = {};
  /// If there are approved earlier runs, the question is whether each arm is
  /// still what it was. If not, each arm is judged against the first.
  std::vector<compare::Run> approved = {};
  /// These are the candidates of a verdict on precision; {} stands for all
  /// (verdicts::RolesOf).
  std::vector<std::string> judged = {};
  logs::EvidenceFiles evidence = {};  ///< that is there already
  /// If true, the oracle probes the arms. With `approved` it always does.
  bool oracle = true;
  bool abort_early = false;  ///< stop once a pair is beyond hope (level L6)
  bool dry_run = false;      ///< check and say all, train nothing
  /// Only these runs are trained, of all looks, and nothing is judged.
  campaign::RunChoice only = {};
  /// If it is set, the list of the runs of all looks is written to this file,
  /// and nothing is trained.
  std::filesystem::path list = {};
  bool no_train = false;  ///< judge what is there; refused if runs are missing
  train::Leftovers leftovers = train::Leftovers::kRefuse;
  std::string how_to_go_on = "--resume";  ///< options, for messages
};

struct Verification {
  /// Has one judgement for each candidate. It is empty if a signal came, if
  /// there was nothing to judge (`dry_run`, `only`, `list`), and in all
  /// processes of a job but the first.
  std::optional<std::vector<gate::Judgement>> judgements = std::nullopt;
  bool interrupted = false;
  verdicts::JudgedRuns judged = {};  ///< what the judgements were given on
};

/// Trains, probes and judges as `plan` says.
/// Errors   ConfigError if there is nothing to judge against, or evidence that
///          is of no use; as campaign::TrainArms, ProbeArms and
///          verdicts::JudgeArms.
Verification Verify(VerifyPlan plan);

}  // namespace isoloss::verify
