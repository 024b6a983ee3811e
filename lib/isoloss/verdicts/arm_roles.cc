#include "isoloss/verdicts/arm_roles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/compare/treatment.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/perturbation.h"
#include "isoloss/train/runner.h"

namespace isoloss::verdicts {
namespace {

/// Gives each of `others`, which are all arms but the baseline, its role.
/// `where` begins a message.
ArmRoles Share(const std::vector<std::string>& others,
               const std::vector<std::string>& controls,
               const std::string& where,
               const std::function<bool(const std::string& arm)>& is_null) {
  ArmRoles roles{.controls = controls};
  const auto is_control = [&](const std::string& arm) {
    return std::ranges::count(controls, arm) != 0;
  };
  for (const std::string& arm : others) {
    if (is_control(arm)) continue;
    (is_null(arm) ? roles.nulls : roles.candidates).push_back(arm);
  }
  if (!roles.candidates.empty()) return roles;
  if (std::ranges::none_of(others, is_control)) {
    // Without candidates the null arms are judged, which shows how far chance
    // goes. A control plays no part in that.
    return {.candidates = std::move(roles.nulls)};
  }
  ThrowError(ErrorKind::kConfig,
             "{}: the control is {}, and no arm is left to be judged: besides "
             "the baseline there are {}. Add a candidate, or name another "
             "control.",
             where, fmt::join(controls, ", "), fmt::join(others, ", "));
}

/// Returns whether the runs of `arm` will differ from those of `baseline` by
/// their perturbation alone (compare::IsNullOf). Recipes of two names may
/// compute the same, but no run has shown so yet, so they are never null arms
/// here.
bool IsPlannedNull(const train::Experiment& experiment, const train::Arm& arm,
                   const train::Arm& baseline) {
  const auto formats = [&](const train::Arm& of) {
    return train::Describe(train::ResolvePhases(experiment, of));
  };
  return train::RecipeNames(arm) == train::RecipeNames(baseline) &&
         formats(arm) == formats(baseline) &&
         train::DescribeExchange(experiment, arm) ==
             train::DescribeExchange(experiment, baseline) &&
         train::DescribePerturbation(arm) !=
             train::DescribePerturbation(baseline);
}

/// Returns the controls that the run's experiment text names: "a" or ["a",
/// "b"].
std::vector<std::string> ControlsIn(const compare::Run& run) {
  auto keys = runlog::KeysOf(run.log.provenance.experiment_text);
  const std::string& text = keys["gate.control"];
  std::vector<std::string> controls;
  for (size_t begin = text.find('"'); begin != std::string::npos;) {
    const size_t end = text.find('"', begin + 1);
    if (end == std::string::npos) break;
    controls.push_back(text.substr(begin + 1, end - begin - 1));
    begin = text.find('"', end + 1);
  }
  return controls;
}

void CheckControl(const std::string& control, const std::string& baseline_arm,
                  const std::vector<std::string>& others) {
  if (control == baseline_arm) {
    ThrowError(ErrorKind::kConfig,
               "--control: `{}` is the baseline, but a control is judged "
               "against it. Name one of {}.",
               control, fmt::join(others, ", "));
  }
  if (std::ranges::count(others, control) != 0) return;
  ThrowError(ErrorKind::kConfig,
             "--control: there is no log of arm `{}`; the logs are of {} and "
             "the baseline {}. Give its logs too, or name another control.{}",
             control, fmt::join(others, ", "), baseline_arm,
             DidYouMean(control, others));
}

/// Returns the arms of `all` that `names` has, in the order of `all`.
std::vector<std::string> Named(const train::Experiment& experiment,
                               const std::vector<std::string>& all,
                               const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == all.front()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: `{}` is the baseline, which the others are judged "
                 "against. Name one of {}.",
                 experiment.path.string(), name,
                 fmt::join(all.begin() + 1, all.end(), ", "));
    }
    train::ArmNamed(experiment, name);  // refuses a name that is none
  }
  std::vector<std::string> named = all;
  std::erase_if(named, [&](const std::string& arm) {
    return std::ranges::count(names, arm) == 0;
  });
  return named;
}

}  // namespace

std::vector<std::string> ArmsOf(const std::vector<compare::Run>& runs) {
  std::vector<std::string> arms;
  for (const compare::Run& run : runs) {
    const std::string& arm = run.log.provenance.arm;
    if (std::ranges::count(arms, arm) == 0) arms.push_back(arm);
  }
  return arms;
}

bool HasRole(const ArmRoles& roles, const std::string& arm) {
  return std::ranges::count(roles.controls, arm) != 0 ||
         std::ranges::count(roles.candidates, arm) != 0 ||
         std::ranges::count(roles.nulls, arm) != 0;
}

ArmRoles RolesOf(const train::Experiment& experiment,
                 const std::vector<std::string>& judged) {
  const std::vector<std::string> all = train::ArmNames(experiment);
  const std::vector<std::string> others(all.begin() + 1, all.end());
  const auto is_null = [&](const std::string& arm) {
    return IsPlannedNull(experiment, train::ArmNamed(experiment, arm),
                         experiment.arms.front());
  };
  const std::vector<std::string>& controls = experiment.gate.control;
  if (judged.empty()) {
    return Share(others, controls, experiment.path.string(), is_null);
  }
  ArmRoles roles{.candidates = Named(experiment, all, judged),
                 .controls = controls};
  for (const std::string& arm : others) {
    const bool is_control = std::ranges::count(controls, arm) != 0;
    if (!is_control && is_null(arm)) roles.nulls.push_back(arm);
  }
  return roles;
}

ArmRoles RolesOf(const std::vector<compare::Run>& runs,
                 const std::string& baseline_arm,
                 const std::optional<std::string>& control) {
  const auto first_of = [&](const std::string& arm) -> const compare::Run& {
    return *compare::RunsOfArm(runs, arm).front();
  };
  const compare::Run& baseline = first_of(baseline_arm);
  std::vector<std::string> others = ArmsOf(runs);
  std::erase(others, baseline_arm);
  std::vector<std::string> controls;
  if (!control) {
    controls = ControlsIn(baseline);
  } else if (!control->empty()) {
    CheckControl(*control, baseline_arm, others);
    controls = {*control};
  }
  return Share(others, controls, "gate", [&](const std::string& arm) {
    return compare::IsNullOf(first_of(arm), baseline);
  });
}

gate::Controls JudgeControls(const std::vector<compare::Run>& runs,
                             const std::string& baseline_arm,
                             const ArmRoles& roles, const gate::Policy& policy,
                             const gate::Looks* looks) {
  const auto judge = [&](const std::string& arm) -> gate::ControlArm {
    if (compare::RunsOfArm(runs, arm).empty()) {
      return {.arm = arm,
              .not_judged =
                  "the experiment names it as its control, but no "
                  "log of it was given"};
    }
    return gate::JudgeControl(
        compare::PairBySeed(baseline_arm,
                            compare::RunsOfArm(runs, baseline_arm), arm,
                            compare::RunsOfArm(runs, arm)),
        policy, looks);
  };
  gate::Controls controls;
  for (const std::string& arm : roles.nulls) {
    controls.nulls.push_back(judge(arm));
  }
  for (const std::string& arm : roles.controls) {
    controls.controls.push_back(judge(arm));
  }
  return controls;
}

}  // namespace isoloss::verdicts
