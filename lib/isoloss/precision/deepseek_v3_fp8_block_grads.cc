// Quantises gradients in squares, of which the report of DeepSeek-V3 warns.
#include "isoloss/precision/deepseek_v3.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe deepseek_v3_fp8_block_grads() {
  Recipe recipe = DeepseekV3({128, 128});
  recipe.name = "deepseek_v3_fp8_block_grads";
  recipe.summary =
      "deepseek_v3_fp8 with 128 x 128 blocks of gradients (diverged)";
  recipe.source =
      "arXiv 2412.19437, section 3.3 and appendix B.2; DeepGEMM 54e2261";
  return recipe;
}

}  // namespace isoloss::precision::recipes
