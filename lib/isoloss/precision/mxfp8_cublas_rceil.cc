// Is MXFP8 with RCEIL scales, under the name that torchao had for it on GPUs.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_cublas_rceil() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e4m3", formats::ScaleRule::kRceil)));
  recipe.name = "mxfp8_cublas_rceil";
  recipe.summary =
      "the same as mxfp8_rceil: torchao called it so in February 2026";
  recipe.source =
      "torchao of February 2026, MXLinearConfig recipe mxfp8_cublas_rceil";
  return recipe;
}

}  // namespace isoloss::precision::recipes
