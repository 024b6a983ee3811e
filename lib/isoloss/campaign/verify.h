// From an experiment to its verdicts: trains the arms, has the oracle probe
// them, judges.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/evidence_files.h"
#include "isoloss/campaign/judge_arms.h"
#include "isoloss/campaign/run_list.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

struct VerifyPlan {
  train::Experiment experiment;
  std::filesystem::path folder = {};  ///< of logs, probes and verdicts
  gate::Policy policy = {};
  /// Good runs of earlier: is each arm still what it was? Empty: the other arms
  /// are judged against the first.
  std::vector<compare::Run> approved = {};
  /// The candidates, of a verdict on precision; {}: all (RolesOf).
  std::vector<std::string> judged = {};
  EvidenceFiles evidence = {};  ///< that is there already
  /// Have the oracle probe the arms; always done with `approved`.
  bool oracle = true;
  bool abort_early = false;  ///< stop once a pair is beyond hope (level L6)
  bool dry_run = false;      ///< check and say all, train nothing
  /// Train these alone, of all looks, and judge nothing.
  RunChoice only = {};
  /// Write the list of the runs there, of all looks, and train nothing; empty:
  /// not asked for.
  std::filesystem::path list = {};
  bool no_train = false;  ///< judge what is there; refused if runs are missing
  train::Leftovers leftovers = train::Leftovers::kRefuse;
  std::string how_to_go_on = "--resume";  ///< options, for messages
};

struct Verification {
  /// One for each candidate. Empty if a signal came, if nothing was to be
  /// judged
  /// (`dry_run`, `only`, `list`), and in all processes of a job but the first.
  std::optional<std::vector<gate::Judgement>> judgements = std::nullopt;
  bool interrupted = false;
  JudgedRuns judged = {};  ///< what the judgements were given on
};

/// Errors   ConfigError if there is nothing to judge against, or evidence that
///          is of no use; as TrainArms, ProbeArms and JudgeArms.
Verification Verify(VerifyPlan plan);

}  // namespace isoloss::campaign
