// Is the baseline: BF16 operands and activations, nothing quantised.
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe bf16() {
  Recipe recipe;
  recipe.name = "bf16";
  recipe.summary = "BF16 operands and activations, FP32 accumulation";
  recipe.source =
      "torchtitan's mixed precision (param_dtype bfloat16, FP32 masters): "
      "docs/model.md, section 9";
  recipe.activation = kernels::Rounding::kBf16;
  return recipe;
}

}  // namespace isoloss::precision::recipes
