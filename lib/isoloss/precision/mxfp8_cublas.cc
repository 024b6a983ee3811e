// Is MXFP8 under the name that torchao had for it on GPUs, with torchao's
// default scale.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_cublas() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e4m3", formats::ScaleRule::kFloor)));
  recipe.name = "mxfp8_cublas";
  recipe.summary =
      "the same as mxfp8_floor: torchao called it so in February 2026";
  recipe.source =
      "torchao of February 2026, MXLinearConfig recipe mxfp8_cublas";
  return recipe;
}

}  // namespace isoloss::precision::recipes
