#include "isoloss/precision/deepseek_v3.h"

#include "isoloss/precision/operands.h"

namespace isoloss::precision {

Recipe DeepseekV3(formats::Cell gradients) {
  constexpr size_t kTile = 128;
  const auto operand = [](formats::Cell cell) {
    return Fp8Operand("e4m3", formats::ScaleRule::kDeepgemm, cell);
  };
  Recipe recipe = RecipeOf(ByTensor(
      operand({1, kTile}), operand({kTile, kTile}), operand(gradients)));
  for (const GemmRole role : kGemmRoles) {
    recipe.For(role).accumulation.interval = kTile;
  }
  recipe.wgrad.right_again = true;
  return recipe;
}

}  // namespace isoloss::precision
