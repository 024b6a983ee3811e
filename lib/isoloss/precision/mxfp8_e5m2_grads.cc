// Is a negative control: gradients have two bits of mantissa.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_e5m2_grads() {
  const auto e4m3 = MxOperand("e4m3", formats::ScaleRule::kRceil);
  const auto e5m2 = MxOperand("e5m2", formats::ScaleRule::kRceil);
  Recipe recipe = RecipeOf(ByTensor(e4m3, e4m3, e5m2));
  recipe.name = "mxfp8_e5m2_grads";
  recipe.summary = "mxfp8_rceil with E5M2 output gradients (negative control)";
  recipe.source =
      "TransformerEngine d0067d0, MXFP8BlockScaling with Format.HYBRID; "
      "reported to diverge: NVIDIA-NeMo/Megatron-Bridge issue 638";
  return recipe;
}

}  // namespace isoloss::precision::recipes
