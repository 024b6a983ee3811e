// What the GEMMs of an arm get.
#pragma once

#include <vector>

#include "isoloss/precision/recipe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// The arm's recipe, with the arm's own patterns in place of the recipe's.
/// Errors   ConfigError if there is no such recipe.
precision::Recipe ArmRecipe(const Arm& arm);

/// What each GEMM of each arm gets, in the order of the arms.
/// Errors   as ArmRecipe and precision::ResolvedRecipe, for any arm.
std::vector<precision::ResolvedRecipe> ResolveRecipes(
    const Experiment& experiment);

}  // namespace isoloss::train
