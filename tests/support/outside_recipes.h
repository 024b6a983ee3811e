// Recipes that quantise attention and gains of norms.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/precision/recipe_file.h"

namespace isoloss::test_support {

/// As TransformerEngine: one FP32 scale a tensor, E5M2 backward.
inline constexpr std::string_view kTeAttention = R"(name = "te_attention"

[operands.e4m3]
element = "e4m3"
block_rows = 0
block_columns = 0
scale_format = "fp32"
scale_rule = "te"
non_finite = "te"

[operands.e5m2]
element = "e5m2"
block_rows = 0
block_columns = 0
scale_format = "fp32"
scale_rule = "te"
non_finite = "te"

[attention]
q = "e4m3"
k = "e4m3"
p = "e4m3"
v = "e4m3"
do = "e5m2"
ds = "e5m2"
)";

/// As FlashAttention-3: forward only, probabilities without a scale.
inline constexpr std::string_view kFa3Attention = R"(name = "fa3_attention"

[operands.scaled]
element = "e4m3"
block_rows = 0
block_columns = 0
scale_format = "fp32"
scale_rule = "te"

[operands.cast]
element = "e4m3"
scale_format = "none"

[attention]
q = "scaled"
k = "scaled"
p = "cast"
v = "scaled"
)";

inline constexpr std::string_view kMxAttention = R"(name = "mx_attention"

[operands.mx]
element = "e4m3"

[attention]
q = "mx"
k = "mx"
p = "mx"
v = "mx"
do = "mx"
ds = "mx"
)";

/// Tiles along the contraction.
inline constexpr std::string_view kTileAttention = R"(name = "tile_attention"

[operands.tile]
element = "e4m3"
block_columns = 16
scale_format = "fp32"
scale_rule = "te"

[attention]
q = "tile"
k = "tile"
p = "tile"
v = "tile"
do = "tile"
ds = "tile"
)";

/// Two scales, short blocks, random bits.
inline constexpr std::string_view kFp4Attention = R"(name = "fp4_attention"

[operands.two]
element = "e2m1"
scaling = "two_level"
block_columns = 16
scale_format = "e4m3"
scale_rule = "te"

[operands.random]
element = "e4m3"
block_rows = 16
block_columns = 16
scale_format = "fp32"
scale_rule = "deepgemm"
rounding = "stochastic"
random_bits = 8

[attention]
q = "two"
k = "two"
p = "random"
v = "random"
do = "random"
ds = "random"
)";

/// Probabilities in BF16, cut off (arXiv 2510.04212).
inline constexpr std::string_view kCutAttention = R"(name = "cut_attention"

[operands.cut]
element = "bf16"
scale_format = "none"
rounding = "toward_zero"

[attention]
p = "cut"
)";

/// Gains of norms in MX blocks, with random bits.
inline constexpr std::string_view kMxGains = R"(name = "mx_gains"
norm_gains = "random"

[operands.random]
element = "e4m3"
scale_rule = "floor"
rounding = "stochastic"
random_bits = 16
)";

inline precision::Recipe RecipeFrom(std::string_view text) {
  return precision::ParseRecipe(text, "recipe.toml");
}

/// All of them.
inline std::vector<precision::Recipe> OutsideRecipes() {
  std::vector<precision::Recipe> recipes;
  for (const std::string_view text :
       {kTeAttention, kFa3Attention, kMxAttention, kTileAttention,
        kFp4Attention, kCutAttention, kMxGains}) {
    recipes.push_back(RecipeFrom(text));
  }
  return recipes;
}

}  // namespace isoloss::test_support
