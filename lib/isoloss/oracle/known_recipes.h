// The oracle's own account of the recipes that users meet by name.
#pragma once

#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// `registered` with the formats that its name stands for
/// (docs/background/recipes.md), whatever the registry says of them; patterns
/// stay, an arm may have its own. All of them sum in FP32 chains and quantise
/// once, and nothing but GEMM sites.
/// A recipe that is not listed here is taken as it is given, all of it: then a
/// wrong format in its definition is no bug that the oracle can see.
precision::Recipe AsKnown(const precision::Recipe& registered);

}  // namespace isoloss::oracle
