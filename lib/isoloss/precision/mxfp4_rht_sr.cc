// Makes MXFP4 trainable: gradients are rotated and rounded stochastically.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp4_rht_sr() {
  constexpr int kBits = 16;
  const auto forward = MxOperand("e4m3", formats::ScaleRule::kRceil);
  const auto backward =
      Stochastic(Transformed(MxOperand("e2m1", formats::ScaleRule::kRceil),
                             formats::Transform::kHadamard16Random),
                 kBits);
  Recipe recipe = RecipeOf(Uniform(backward));
  recipe.fprop = {forward, forward};
  recipe.name = "mxfp4_rht_sr";
  recipe.summary = "MXFP8 forward; MXFP4 backward, random Hadamard, stochastic";
  recipe.source =
      "arXiv 2502.20586, with runs of 16 in place of 64 and scales rounded up, "
      "so that nothing saturates";
  return recipe;
}

}  // namespace isoloss::precision::recipes
