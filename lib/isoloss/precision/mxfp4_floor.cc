// A second negative control: four bits an element.
#include "isoloss/precision/mxfp8.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp4_floor() {
  // Sites as MXFP8's; every operand in MXFP4.
  Recipe recipe = Mxfp8(formats::ScaleRule::kFloor);
  recipe.name = "mxfp4_floor";
  recipe.summary = "MXFP4 E2M1 in all three products, scale rounded down";
  recipe.source = "torchao of February 2026, MXLinearConfig, mxfp4_emulated";
  const formats::Quantization operand =
      MxOperand("e2m1", formats::ScaleRule::kFloor);
  recipe.fprop = {operand, operand};
  recipe.dgrad = {operand, operand};
  recipe.wgrad = {operand, operand};
  return recipe;
}

}  // namespace isoloss::precision::recipes
