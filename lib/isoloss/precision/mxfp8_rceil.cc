// Is MXFP8 as it is trained with today: E4M3 everywhere, scales rounded up.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_rceil() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e4m3", formats::ScaleRule::kRceil)));
  recipe.name = "mxfp8_rceil";
  recipe.summary = "MXFP8 E4M3 in all three products, scale rounded up";
  recipe.source =
      "torchao 36027d8, torchao/prototype/moe_training/config.py, mxfp8_rceil; "
      "NVIDIA's MXFP8 recipe, arXiv 2506.08027";
  return recipe;
}

}  // namespace isoloss::precision::recipes
