#include "qualification/kill_matrix_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/gate/level.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/ensemble.h"

namespace isoloss::qualification {

void RequireOtherArm(const KillMatrixPlan& plan) {
  if (plan.reference->name != plan.arm.name) return;
  ThrowError(ErrorKind::kConfig,
             "--reference {} is the arm in which things are "
             "planted, but it must be another one. Name that with --arm, or "
             "leave --reference out for the question of regression.",
             plan.arm.name);
}

void RequireEnsemble(const KillMatrixPlan& plan) {
  if (plan.ensemble || (plan.benign_runs == 0 && !plan.reference)) return;
  ThrowError(
      ErrorKind::kConfig,
      "{} without --ensemble, but good runs are "
      "inconclusive without one. Make one with `isoloss lab ensemble build "
      "--arm {}{}`.",
      plan.reference ? fmt::format("--reference {}", plan.reference->name)
                     : fmt::format("--benign {}", plan.benign_runs),
      plan.arm.name,
      plan.reference
          ? fmt::format(" --kind seeds --steps {}", plan.experiment.train.steps)
          : "");
}

std::vector<Mutant> ChosenMutants(const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  std::vector<Mutant> chosen;
  for (const Mutant& mutant : AllMutants()) {
    names.push_back(mutant.name);
    if (precision::FirstMatch(patterns, mutant.name) != nullptr) {
      chosen.push_back(mutant);
    }
  }
  for (const std::string& pattern : patterns) {
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return precision::SiteMatches(pattern, name);
        })) {
      ThrowError(ErrorKind::kConfig,
                 "--mutants {}: none of the {} mutants matches. "
                 "`isoloss_qualification list` shows them.{}",
                 pattern, names.size(), DidYouMean(pattern, names));
    }
  }
  return chosen;
}

KillMatrixPlan PlanKillMatrix(const KillMatrixRequest& request) {
  KillMatrixPlan plan;
  plan.experiment = request.source.Load();
  plan.arm = campaign::OneArm(plan.experiment, request.arm);
  if (!request.reference.empty()) {
    plan.reference = campaign::OneArm(plan.experiment, request.reference);
    RequireOtherArm(plan);
  }
  for (size_t i = 0; i < request.seeds; ++i) {
    plan.seeds.push_back(plan.experiment.train.seeds.front() + i);
  }
  plan.mutants = ChosenMutants(request.mutants);
  plan.benign_runs = request.benign_runs;
  if (!request.policy.empty()) plan.policy = gate::ReadPolicy(request.policy);
  // One pair per cell seldom settles the final window.
  if (plan.reference && plan.policy.levels.empty()) {
    using enum gate::LevelId;
    for (const auto level : {l2_oracle, l3_precision, l4_early_window}) {
      plan.policy.levels.emplace_back(gate::LevelName(level));
    }
  }
  plan.policy.question = plan.reference ? compare::Question::kPrecision
                                        : compare::Question::kRegression;
  if (!request.ensemble.empty()) {
    plan.ensemble = gate::NullEnsemble{request.ensemble.string(),
                                       runlog::ReadEnsemble(request.ensemble)};
  }
  plan.folder = request.out;
  if (plan.folder.empty()) {
    plan.folder = campaign::ResultsFolder(plan.experiment, "");
    plan.folder += "-mutants";
  }
  plan.workers = plan.experiment.parallel.workers;
  RequireEnsemble(plan);
  return plan;
}

}  // namespace isoloss::qualification
