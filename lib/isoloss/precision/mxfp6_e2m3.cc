// Is the MXFP6 with more precision.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp6_e2m3() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e2m3", formats::ScaleRule::kRceil)));
  recipe.name = "mxfp6_e2m3";
  recipe.summary = "MXFP6 E2M3 in all three products, scale rounded up";
  recipe.source = "OCP Microscaling Formats (MX) v1.0; arXiv 2310.10537";
  return recipe;
}

}  // namespace isoloss::precision::recipes
