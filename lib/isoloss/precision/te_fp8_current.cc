// Is TransformerEngine's FP8 with one scale per tensor, which follows from the
// tensor itself.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe te_fp8_current() {
  const auto tensor = [](std::string_view element) {
    return Fp8Operand(element, formats::ScaleRule::kTe, {0, 0});
  };
  Recipe recipe =
      RecipeOf(ByTensor(tensor("e4m3"), tensor("e4m3"), tensor("e5m2")));
  recipe.name = "te_fp8_current";
  recipe.summary = "FP8, one scale a tensor, current; E5M2 gradients";
  recipe.source =
      "TransformerEngine d0067d0, Float8CurrentScaling with Format.HYBRID";
  return recipe;
}

}  // namespace isoloss::precision::recipes
