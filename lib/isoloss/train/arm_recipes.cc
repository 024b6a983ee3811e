#include "isoloss/train/arm_recipes.h"

#include <fmt/format.h>

#include <string>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/runlog/recipe_phases.h"

namespace isoloss::train {

precision::Recipe ArmRecipe(const Arm& arm) {
  precision::Recipe recipe = arm.BaseRecipe();
  if (arm.include) recipe.include = *arm.include;
  if (arm.exclude) recipe.exclude = *arm.exclude;
  return recipe;
}

std::string WrongPhase(const Arm& arm, size_t place, int64_t steps) {
  const double from = arm.then[place].from;
  const int64_t last = runlog::LastStepOf(from, steps);
  const int64_t before =
      place == 0 ? 0 : runlog::LastStepOf(arm.then[place - 1].from, steps);
  if (place > 0 && from <= arm.then[place - 1].from) {
    return fmt::format(
        "is {}, but that of the table before it is {}, and shares must ascend. "
        "Order the tables by `from`.",
        from, arm.then[place - 1].from);
  }
  if (before < last && last < steps) return "";
  return fmt::format(
      "is {}, so that recipe {} ends after step {} of {}, but {}. Move the "
      "share or train for more steps.",
      from, place == 0 ? arm.recipe : arm.then[place - 1].recipe, last, steps,
      last < steps
          ? fmt::format("it begins after step {} and must have one", before)
          : fmt::format("recipe {} must have a step, too",
                        arm.then[place].recipe));
}

Arm ArmInPhase(const Arm& arm, size_t phase) {
  Arm result = arm;
  result.then.clear();
  if (phase == 0) return result;
  const LaterRecipe& later = arm.then[phase - 1];
  result.recipe = later.recipe;
  result.own_recipe = later.own_recipe;
  result.include = later.include;
  result.exclude = later.exclude;
  return result;
}

std::vector<ArmPhase> PhasesOf(const Arm& arm, int64_t steps) {
  std::vector<ArmPhase> phases = {{1, ArmInPhase(arm, 0)}};
  for (size_t i = 0; i < arm.then.size(); ++i) {
    const std::string wrong = WrongPhase(arm, i, steps);
    if (!wrong.empty()) {
      ThrowError(ErrorKind::kConfig, "arms.{}.then: `from` {}", arm.name,
                 wrong);
    }
    phases.push_back({runlog::LastStepOf(arm.then[i].from, steps) + 1,
                      ArmInPhase(arm, i + 1)});
  }
  return phases;
}

bool QuantizesAnything(const Arm& arm) {
  for (size_t phase = 0; phase <= arm.then.size(); ++phase) {
    if (ArmRecipe(ArmInPhase(arm, phase)).quantizes_anything()) return true;
  }
  return false;
}

std::string RecipeNames(const Arm& arm) {
  std::string names = arm.recipe;
  for (const LaterRecipe& later : arm.then) {
    names += std::string(runlog::kThen) + later.recipe;
  }
  return names;
}

std::vector<ResolvedPhase> ResolvePhases(const Experiment& experiment,
                                         const Arm& arm) {
  const std::vector<precision::Site> sites = model::GemmSites(experiment.model);
  std::vector<ResolvedPhase> phases;
  for (const ArmPhase& phase : PhasesOf(arm, experiment.train.steps)) {
    phases.push_back({phase.first_step,
                      precision::ResolvedRecipe(ArmRecipe(phase.arm), sites)});
  }
  return phases;
}

std::string Describe(const std::vector<ResolvedPhase>& phases) {
  std::string text;
  for (const ResolvedPhase& phase : phases) {
    if (phase.first_step > 1) {
      text +=
          runlog::PhaseHeading(phase.first_step, phase.recipe.recipe().name);
    }
    text += phase.recipe.Describe();
  }
  return text;
}

}  // namespace isoloss::train
