// Declares the functions that are registered in recipes.def, one per file.
#pragma once

#include "isoloss/precision/recipe.h"

namespace isoloss::precision::recipes {

#define ISOLOSS_RECIPE(name) Recipe name();
#include "isoloss/precision/recipes.def"
#undef ISOLOSS_RECIPE

}  // namespace isoloss::precision::recipes
