// Is a second negative control, with four bits per element.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp4_floor() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e2m1", formats::ScaleRule::kFloor)));
  recipe.name = "mxfp4_floor";
  recipe.summary = "MXFP4 E2M1 in all three products, scale rounded down";
  recipe.source = "torchao of February 2026, MXLinearConfig, mxfp4_emulated";
  return recipe;
}

}  // namespace isoloss::precision::recipes
