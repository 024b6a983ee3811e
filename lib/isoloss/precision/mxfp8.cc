#include "isoloss/precision/mxfp8.h"

namespace isoloss::precision {

formats::Quantization MxOperand(std::string_view element,
                                formats::ScaleRule mode) {
  return {.element = &formats::FormatByName(element),
          .scale_rule = mode,
          .non_finite = formats::NonFinitePolicy::kBlockNan};
}

Recipe Mxfp8(formats::ScaleRule mode) {
  const formats::Quantization operand = MxOperand("e4m3", mode);
  Recipe recipe;
  recipe.activation = kernels::Rounding::kBf16;
  recipe.fprop = {operand, operand};
  recipe.dgrad = {operand, operand};
  recipe.wgrad = {operand, operand};
  recipe.include = {"attention", "feed_forward?", "shared_experts?",
                    "routed_experts?"};
  recipe.exclude = {"router.gate?", "lm_head?"};
  return recipe;
}

}  // namespace isoloss::precision
