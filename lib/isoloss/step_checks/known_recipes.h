// States a second time, for the oracle alone, what the recipes contain that
// users meet by name.
#pragma once

#include <string>

#include "isoloss/model/config.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::step_checks {

/// Returns `registered` with the content that its name stands for
/// (docs/recipes.md), whatever the registry says. Patterns of sites stay, since
/// an arm may have its own. If a run of that name has different content, its
/// values are not those that the oracle expects. A recipe that is not listed
/// here is taken as it is given: the oracle cannot see a wrong format in its
/// definition.
precision::Recipe AsKnown(const precision::Recipe& registered);

/// Returns why the oracle can't compute the recipe on its own, or "" if it can.
/// It may lack text for a format, scaling, rounding, transform or accumulator.
/// Or it does not know the name of a `registered` recipe, and would have to
/// trust the registry's content. Recipes that the experiment itself writes down
/// are taken as written.
std::string WhyNotUnderstood(const precision::Recipe& recipe, bool registered,
                             const model::ModelConfig& config);

}  // namespace isoloss::step_checks
