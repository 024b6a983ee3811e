// Is MXFP8 with the scale rule of the OCP specification, which lets the largest
// elements of a block saturate.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_floor() {
  Recipe recipe =
      RecipeOf(Uniform(MxOperand("e4m3", formats::ScaleRule::kFloor)));
  recipe.name = "mxfp8_floor";
  recipe.summary = "MXFP8 E4M3 in all three products, scale rounded down";
  recipe.source =
      "OCP Microscaling Formats (MX) v1.0, section 6.3; torchao of February "
      "2026, MXLinearConfig recipe mxfp8_emulated";
  return recipe;
}

}  // namespace isoloss::precision::recipes
