// Is MXFP8 with weight gradients in high precision.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_rceil_wgrad_with_hp() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e4m3", formats::ScaleRule::kRceil)));
  recipe.wgrad = {};
  recipe.name = "mxfp8_rceil_wgrad_with_hp";
  recipe.summary = "mxfp8_rceil, but weight gradients from BF16 operands";
  recipe.source =
      "torchao 36027d8, torchao/prototype/moe_training/config.py, "
      "mxfp8_rceil_wgrad_with_hp";
  return recipe;
}

}  // namespace isoloss::precision::recipes
