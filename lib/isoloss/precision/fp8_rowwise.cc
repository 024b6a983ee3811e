// Is torchao's row-wise FP8.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe fp8_rowwise() {
  auto row = Fp8Operand("e4m3", formats::ScaleRule::kTorchao, {1, 0});
  row.scale_format = formats::ScaleFormat::kPow2;
  Recipe recipe = RecipeOf(Uniform(row));
  recipe.name = "fp8_rowwise";
  recipe.summary = "FP8 E4M3, one scale a row of each operand, powers of two";
  recipe.source = "torchao 36027d8, float8 recipe rowwise";
  return recipe;
}

}  // namespace isoloss::precision::recipes
