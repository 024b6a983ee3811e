// The oracle's own account of the recipes that users meet by name.
#pragma once

#include <string>

#include "isoloss/model/config.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// `registered` with the content that its name stands for
/// (docs/recipes.md), whatever the registry says of it; patterns of
/// sites stay, an arm may have its own. So a run of that name whose content is
/// another one has values that the oracle does not expect.
/// A recipe that is not listed here is taken as it is given, all of it: then a
/// wrong format in its definition is no bug that the oracle can see.
precision::Recipe AsKnown(const precision::Recipe& registered);

/// What of a recipe the oracle can't compute on its own: a format, scaling,
/// rounding, transform or accumulator that it has no text for, or, of a
/// `registered` one, its name, for whose content it would have to take the
/// registry's word. "" if it understands all. Recipes that the experiment
/// itself writes down are taken as written.
std::string WhyNotUnderstood(const precision::Recipe& recipe, bool registered,
                             const model::ModelConfig& config);

}  // namespace isoloss::oracle
