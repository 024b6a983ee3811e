// A negative control: output gradients lose one of E4M3's mantissa bits.
#include "isoloss/precision/mxfp8.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe mxfp8_e5m2_grads() {
  Recipe recipe = Mxfp8(formats::ScaleRule::kRceil);
  recipe.name = "mxfp8_e5m2_grads";
  recipe.summary = "mxfp8_rceil with E5M2 output gradients (negative control)";
  recipe.source =
      "TransformerEngine d0067d0, MXFP8BlockScaling with Format.HYBRID; "
      "reported "
      "to diverge: NVIDIA-NeMo/Megatron-Bridge issue 638";
  const formats::Quantization gradient =
      MxOperand("e5m2", formats::ScaleRule::kRceil);
  recipe.dgrad.left = gradient;
  recipe.wgrad.left = gradient;
  return recipe;
}

}  // namespace isoloss::precision::recipes
