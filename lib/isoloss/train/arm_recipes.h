// Resolves the recipe of each GEMM of an arm.
#pragma once

#include <vector>

#include "isoloss/precision/recipe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// Returns the arm's recipe, with the arm's own patterns in place of the
/// recipe's.
/// Errors   ConfigError if there is no such recipe.
precision::Recipe ArmRecipe(const Arm& arm);

/// Resolves the recipe of each GEMM of each arm, in the order of the arms.
/// Errors   as ArmRecipe and precision::ResolvedRecipe, for any arm.
std::vector<precision::ResolvedRecipe> ResolveRecipes(
    const Experiment& experiment);

}  // namespace isoloss::train
