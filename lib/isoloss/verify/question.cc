#include "isoloss/verify/question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::verify {
namespace {

/// Compares each arm with the first one of the experiment.
class ArmsQuestion : public Question {
 public:
  ArmsQuestion(const train::Experiment& experiment, gate::Policy policy,
               const std::vector<std::string>& judged)
      : Question(experiment, std::move(policy),
                 verdicts::RolesOf(experiment, judged)),
        are_chosen_(!judged.empty()) {}

  campaign::TrainingPlan Plan() const override {
    campaign::TrainingPlan training = campaign::PlanTraining(experiment_);
    if (!are_chosen_) return training;
    std::erase_if(training.runs, [&](const train::Run& run) {
      return run.arm->name != baseline().name &&
             !verdicts::HasRole(roles_, run.arm->name);
    });
    return training;
  }

  void CheckEvidence(const logs::EvidenceFiles& evidence) const override {
    logs::CheckEvidenceIsUsed(evidence, policy_.question, roles_.candidates,
                              baseline().name);
  }

  ProbeSettings Witness(const std::vector<compare::Run>& runs) const override {
    ProbeSettings settings{.plain_steps = PlainStepsDue(runs, {}, policy_),
                           .cases = ProbedCases(policy_),
                           .steps = campaign::kProbedSteps};
    // L3 compares with high precision only.
    if (!train::QuantizesAnything(baseline())) {
      settings.reference = baseline().name;
    }
    return settings;
  }

  std::vector<gate::Judgement> Judge(
      std::vector<compare::Run> runs,
      const logs::EvidenceFiles& evidence) const override {
    return verdicts::JudgeArms(runs, baseline().name, policy_, evidence);
  }

 protected:
  const train::Arm& baseline() const { return experiment_.arms.front(); }

 private:
  const bool are_chosen_;
};

class PrecisionQuestion final : public ArmsQuestion {
 public:
  using ArmsQuestion::ArmsQuestion;

  std::vector<gate::Judgement> Judge(
      std::vector<compare::Run> runs,
      const logs::EvidenceFiles& evidence) const override {
    return verdicts::JudgeRoles(runs, baseline().name, roles_, policy_,
                                evidence);
  }

  logs::Keep kept() const override { return logs::Keep::kForPrecision; }
  bool IsSequential() const override { return true; }
};

/// Returns the arms of the experiment that have approved runs, without null
/// arms and control.
verdicts::ArmRoles ApprovedArms(const train::Experiment& experiment,
                                const std::vector<compare::Run>& approved) {
  std::vector<std::string> arms = train::ArmNames(experiment);
  std::erase_if(arms, [&](const std::string& arm) {
    return compare::RunsOfArm(approved, arm).empty();
  });
  if (arms.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --against has {} logs, the first of arm {}, but the arms "
               "here are {}. Give approved logs of one of them.",
               experiment.path.string(), approved.size(),
               approved.front().log.provenance.arm,
               fmt::join(train::ArmNames(experiment), ", "));
  }
  return {.candidates = std::move(arms)};
}

class ApprovedQuestion final : public Question {
 public:
  ApprovedQuestion(const train::Experiment& experiment, gate::Policy policy,
                   const std::vector<compare::Run>& approved)
      : Question(experiment, std::move(policy),
                 ApprovedArms(experiment, approved)),
        approved_(approved) {}

  campaign::TrainingPlan Plan() const override {
    const bool alone = roles_.candidates.size() == 1;
    return campaign::PlanTraining(experiment_,
                                  alone ? roles_.candidates.front() : "");
  }

  void CheckEvidence(const logs::EvidenceFiles& evidence) const override {
    logs::CheckEvidenceIsUsed(evidence, compare::Question::kRegression,
                              roles_.candidates);
  }

  ProbeSettings Witness(const std::vector<compare::Run>& runs) const override {
    return {.plain_steps = PlainStepsDue(runs, approved_, policy_),
            .cases = ProbedCases(policy_)};
  }

  std::vector<gate::Judgement> Judge(
      std::vector<compare::Run> runs,
      const logs::EvidenceFiles& evidence) const override {
    std::erase_if(runs, [&](const compare::Run& run) {
      return std::ranges::count(roles_.candidates, run.log.provenance.arm) == 0;
    });
    return verdicts::JudgeAgainstApproved(runs, approved_, policy_, evidence);
  }

  bool Takes(const std::string& arm, int64_t seed) const override {
    return std::ranges::any_of(approved_, [&](const compare::Run& run) {
      return run.log.provenance.arm == arm && run.log.provenance.seed == seed;
    });
  }

  bool RequiresOracle() const override { return true; }

 private:
  const std::vector<compare::Run>& approved_;
};

}  // namespace

bool Question::Takes(const std::string& /*arm*/, int64_t /*seed*/) const {
  return true;
}

std::unique_ptr<Question> QuestionOfArms(
    const train::Experiment& experiment, const gate::Policy& policy,
    const std::vector<std::string>& judged) {
  if (experiment.arms.size() == 1) {
    ThrowError(
        ErrorKind::kConfig,
        "{}: `arms` holds {} alone, but a verdict needs a second arm or "
        "approved logs. Add an arm, give --against, or use `isoloss run`.",
        experiment.path.string(), experiment.arms.front().name);
  }
  if (policy.question == compare::Question::kPrecision) {
    return std::make_unique<PrecisionQuestion>(experiment, policy, judged);
  }
  return std::make_unique<ArmsQuestion>(experiment, policy, judged);
}

std::unique_ptr<Question> QuestionOfApproved(
    const train::Experiment& experiment, const gate::Policy& policy,
    const std::vector<compare::Run>& approved) {
  return std::make_unique<ApprovedQuestion>(experiment, policy, approved);
}

}  // namespace isoloss::verify
