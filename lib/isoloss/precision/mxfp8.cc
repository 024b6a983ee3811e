#include "isoloss/precision/mxfp8.h"

namespace isoloss::precision {

formats::MxSpec MxOperand(std::string_view element, formats::ScaleMode mode) {
  return {.element = &formats::FormatByName(element),
          .scale_mode = mode,
          .non_finite = formats::NonFinitePolicy::kBlockNan};
}

Recipe Mxfp8(formats::ScaleMode mode) {
  const formats::MxSpec operand = MxOperand("e4m3", mode);
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
