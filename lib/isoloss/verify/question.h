// Defines the questions on the arms of an experiment: are they equal in
// training, or still what they were?
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "isoloss/campaign/train_arms.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/train/experiment.h"
#include "isoloss/verdicts/arm_roles.h"
#include "isoloss/verify/probe_runs.h"

namespace isoloss::verify {

/// A question plans the runs that answer it, says what the oracle must see of
/// them, and judges them. It refers to the experiment and the approved runs.
class Question {
 public:
  virtual ~Question() = default;

  const verdicts::ArmRoles& roles() const { return roles_; }

  /// Plans the runs of all arms that have a role.
  /// Errors   as campaign::PlanTraining.
  virtual campaign::TrainingPlan Plan() const = 0;
  /// Checks that the evidence belongs to the arms that are judged.
  /// Errors   as logs::CheckEvidenceIsUsed.
  virtual void CheckEvidence(const logs::EvidenceFiles& evidence) const = 0;
  /// Says what the oracle has to probe of these runs.
  virtual ProbeSettings Witness(
      const std::vector<compare::Run>& runs) const = 0;
  /// Returns one judgement for each candidate.
  /// Errors   as verdicts::JudgeRoles, verdicts::JudgeArms and
  /// verdicts::JudgeAgainstApproved.
  virtual std::vector<gate::Judgement> Judge(
      std::vector<compare::Run> runs,
      const logs::EvidenceFiles& evidence) const = 0;

  /// Returns whether a run that was trained before can be judged with the runs
  /// of the plan.
  virtual bool Takes(const std::string& arm, int64_t seed) const;
  /// Says which parts of the logs the judge needs.
  virtual logs::Keep kept() const { return logs::Keep::kAll; }
  /// Returns whether the question may be asked after some of the seeds
  /// (SeedLooks), so that its power can be planned.
  virtual bool IsSequential() const { return false; }
  /// Returns whether every verdict needs the oracle.
  virtual bool RequiresOracle() const { return false; }

 protected:
  Question(const train::Experiment& experiment, gate::Policy policy,
           verdicts::ArmRoles roles)
      : experiment_(experiment),
        policy_(std::move(policy)),
        roles_(std::move(roles)) {}

  const train::Experiment& experiment_;
  const gate::Policy policy_;
  const verdicts::ArmRoles roles_;
};

/// Returns the question of `policy`, which compares each arm of `experiment`
/// with its first. `judged` names the candidates of a question of precision; {}
/// stands for all (verdicts::RolesOf).
/// Errors   ConfigError if there is one arm alone; as verdicts::RolesOf.
std::unique_ptr<Question> QuestionOfArms(
    const train::Experiment& experiment, const gate::Policy& policy,
    const std::vector<std::string>& judged);

/// Asks for regression: is each arm still what its `approved` runs were?
/// Errors   ConfigError if none of the arms has an approved run.
std::unique_ptr<Question> QuestionOfApproved(
    const train::Experiment& experiment, const gate::Policy& policy,
    const std::vector<compare::Run>& approved);

}  // namespace isoloss::verify
