// Is TransformerEngine's MXFP8.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe te_mxfp8() {
  auto operand = MxOperand("e4m3", formats::ScaleRule::kRceil);
  operand.non_finite = formats::NonFinitePolicy::kTe;
  Recipe recipe = RecipeOf(Uniform(operand));
  recipe.name = "te_mxfp8";
  recipe.summary =
      "MXFP8 E4M3 in all three products; one NaN does not spoil a block";
  recipe.source = "TransformerEngine d0067d0, MXFP8BlockScaling";
  return recipe;
}

}  // namespace isoloss::precision::recipes
