#include "isoloss/train/arm_recipes.h"

#include <string>

#include "isoloss/model/graph.h"

namespace isoloss::train {

precision::Recipe ArmRecipe(const Arm& arm) {
  precision::Recipe recipe = arm.BaseRecipe();
  if (arm.include) recipe.include = *arm.include;
  if (arm.exclude) recipe.exclude = *arm.exclude;
  return recipe;
}

std::vector<precision::ResolvedRecipe> ResolveRecipes(
    const Experiment& experiment) {
  const std::vector<precision::Site> sites = model::GemmSites(experiment.model);
  std::vector<precision::ResolvedRecipe> recipes;
  for (const Arm& arm : experiment.arms) {
    recipes.emplace_back(ArmRecipe(arm), sites);
  }
  return recipes;
}

}  // namespace isoloss::train
