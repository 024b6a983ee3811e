// Is TransformerEngine's first FP8 recipe, whose scales follow from earlier
// steps.
#include "isoloss/precision/operands.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {
namespace {

formats::Quantization Delayed(std::string_view element) {
  auto operand = Fp8Operand(element, formats::ScaleRule::kTe, {0, 0});
  operand.scaling = formats::Scaling::kDelayed;
  operand.history = 1024;
  return operand;
}

}  // namespace

Recipe te_fp8_delayed() {
  Recipe recipe =
      RecipeOf(ByTensor(Delayed("e4m3"), Delayed("e4m3"), Delayed("e5m2")));
  recipe.name = "te_fp8_delayed";
  recipe.summary = "FP8, one scale a tensor, of 1024 steps; E5M2 gradients";
  recipe.source =
      "TransformerEngine d0067d0, DelayedScaling: amax_history_len 1024, "
      "amax_compute_algo max, Format.HYBRID";
  return recipe;
}

}  // namespace isoloss::precision::recipes
