// Is the FP8 with which DeepSeek-V3 was trained.
#include "isoloss/precision/deepseek_v3.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision::recipes {

Recipe deepseek_v3_fp8() {
  Recipe recipe = DeepseekV3({1, 128});
  recipe.name = "deepseek_v3_fp8";
  recipe.summary =
      "FP8 E4M3 in tiles of 128, FP32 scales, sums promoted every 128";
  recipe.source =
      "arXiv 2412.19437, section 3.3 and appendix B.2; DeepGEMM 54e2261";
  return recipe;
}

}  // namespace isoloss::precision::recipes
