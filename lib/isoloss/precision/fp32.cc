// Never rounds below FP32, which tells rounding apart from everything else.
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe fp32() {
  Recipe recipe;
  recipe.name = "fp32";
  recipe.summary = "FP32 throughout, nothing rounded further";
  recipe.source = "torchtitan without mixed precision: docs/model.md";
  recipe.activation = kernels::Rounding::kFp32;
  return recipe;
}

}  // namespace isoloss::precision::recipes
