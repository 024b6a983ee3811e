// Is TransformerEngine's NVFP4.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe te_nvfp4() {
  constexpr int kBits = 8;
  const auto x = Nvfp4Operand(/*square=*/false);
  const auto dy = Stochastic(x, kBits);
  Recipe recipe = RecipeOf(ByTensor(x, Nvfp4Operand(/*square=*/true), dy));
  recipe.wgrad = {Transformed(dy, formats::Transform::kHadamard16Te),
                  Transformed(x, formats::Transform::kHadamard16Te)};
  recipe.last_layers = 1;
  recipe.name = "te_nvfp4";
  recipe.summary = "NVFP4, 2-D weights; wgrad rotated, gradients stochastic";
  recipe.source =
      "TransformerEngine d0067d0, NVFP4BlockScaling; arXiv 2509.25149: the "
      "last layers stay in BF16";
  return recipe;
}

}  // namespace isoloss::precision::recipes
