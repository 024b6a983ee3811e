// Is the MXFP6 with more range.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp6_e3m2() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e3m2", formats::ScaleRule::kRceil)));
  recipe.name = "mxfp6_e3m2";
  recipe.summary = "MXFP6 E3M2 in all three products, scale rounded up";
  recipe.source = "OCP Microscaling Formats (MX) v1.0; arXiv 2310.10537";
  return recipe;
}

}  // namespace isoloss::precision::recipes
