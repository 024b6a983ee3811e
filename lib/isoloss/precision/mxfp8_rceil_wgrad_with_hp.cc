// As mxfp8_rceil, with weight gradients from the unquantised BF16 tensors.
#include "isoloss/precision/mxfp8.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_rceil_wgrad_with_hp() {
  Recipe recipe = Mxfp8(formats::ScaleRule::kRceil);
  recipe.name = "mxfp8_rceil_wgrad_with_hp";
  recipe.summary = "mxfp8_rceil, but weight gradients from BF16 operands";
  recipe.source =
      "torchao 36027d8, torchao/prototype/moe_training/config.py, "
      "mxfp8_rceil_wgrad_with_hp";
  recipe.wgrad = {};
  return recipe;
}

}  // namespace isoloss::precision::recipes
