// Is TransformerEngine's MXFP8 with square blocks of weights, so that W and its
// transpose are the same numbers.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe te_mxfp8_2d() {
  auto operand = MxOperand("e4m3", formats::ScaleRule::kRceil);
  operand.non_finite = formats::NonFinitePolicy::kTe;
  auto weight = operand;
  weight.cell = {32, 32};
  Recipe recipe = RecipeOf(ByTensor(operand, weight, operand));
  recipe.name = "te_mxfp8_2d";
  recipe.summary = "te_mxfp8 with 32 x 32 blocks of weights";
  recipe.source =
      "TransformerEngine d0067d0, MXFP8BlockScaling with "
      "enable_2d_quantization";
  return recipe;
}

}  // namespace isoloss::precision::recipes
