#include "isoloss/ensembles/ensemble_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/gate/policy.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/runner.h"

namespace isoloss::ensembles {
namespace {

/// Members of kBenign take the experiment's seeds in turn, members of kSeeds
/// new ones.
std::vector<uint64_t> SeedsOf(const EnsembleRequest& request,
                              const train::Experiment& experiment,
                              bool benign) {
  std::vector<uint64_t> seeds(request.runs);
  const std::vector<uint64_t>& own = experiment.train.seeds;
  for (size_t i = 0; i < seeds.size(); ++i) {
    seeds[i] = benign ? own[i % own.size()] : request.first_seed + i;
    if (!benign && std::ranges::count(own, seeds[i]) != 0) {
      ThrowError(ErrorKind::kConfig,
                 "ensemble: seed {} is one of the experiment's, but a run must "
                 "not be judged by itself. Choose other seeds with "
                 "--first-seed.",
                 seeds[i]);
    }
  }
  return seeds;
}

/// Requires that no arm changes its recipe within the ensemble's steps: what
/// good runs do there is predicted from one recipe.
void RequireOneRecipe(const EnsemblePlan& plan) {
  for (const std::string& name : {plan.arm, plan.baseline_arm}) {
    const train::Arm& arm = train::ArmNamed(plan.experiment, name);
    const auto phases = train::PhasesOf(arm, plan.experiment.train.steps);
    if (phases.size() == 1 || phases[1].first_step > plan.steps) continue;
    ThrowError(
        ErrorKind::kConfig,
        "{}: arm {} changes its recipe at step {}, but an ensemble of {} steps "
        "is of one recipe. Give --steps {} or fewer, and the policy as "
        "many early_steps, or judge without an ensemble.",
        plan.experiment.path.string(), name, phases[1].first_step, plan.steps,
        phases[1].first_step - 1);
  }
}

}  // namespace

EnsemblePlan PlanEnsemble(const EnsembleRequest& request) {
  EnsemblePlan plan;
  plan.experiment = request.source.Load();
  // Members sum their products in other orders, which must not depend on how a
  // batch is cut.
  train::TakeWholeBatches(plan.experiment);
  const bool benign = request.kind == runlog::EnsembleKind::kBenign;
  plan.kind = request.kind;
  plan.arm = campaign::OneArm(plan.experiment, request.arm).name;
  plan.baseline_arm = plan.experiment.arms.front().name;
  if (!benign && plan.arm == plan.baseline_arm) {
    ThrowError(ErrorKind::kConfig,
               "{}: an ensemble of seeds pairs an arm with the baseline, but "
               "{} is the baseline. Give another --arm.",
               plan.experiment.path.string(), plan.arm);
  }
  const int64_t own_steps = plan.experiment.train.steps;
  plan.steps =
      request.steps.value_or(std::min(gate::Policy{}.early_steps, own_steps));
  if (plan.steps > own_steps) {
    ThrowError(ErrorKind::kConfig,
               "{}: --steps is {}, but the experiment has {}. Give fewer.",
               plan.experiment.path.string(), plan.steps, own_steps);
  }
  RequireOneRecipe(plan);
  plan.runs = request.runs;
  plan.seeds = SeedsOf(request, plan.experiment, benign);
  if (!benign) plan.probe_steps = request.probe_steps;
  plan.folder = request.out.string() + ".members";
  plan.workers = request.workers;
  return plan;
}

void CheckEnsembleOutput(const std::filesystem::path& out) {
  if (std::filesystem::is_directory(out) || !out.has_filename()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --out is a folder, but an ensemble is a file. Give a path "
               "such as {}.",
               out.string(), (out / "ensemble.h5").string());
  }
  RemoveStaleTemporaries(out.parent_path(), out.filename().string());
  std::error_code error;  // errors appear with the folder
  if (!std::filesystem::exists(out, error)) return;
  try {
    runlog::ReadEnsemble(out);
  } catch (const Error& reason) {
    ThrowError(ErrorKind::kConfig,
               "{}: --out is there and is no null ensemble, so it is not "
               "replaced ({}). Remove it, or give another --out.",
               out.string(), reason.what());
  }
}

}  // namespace isoloss::ensembles
