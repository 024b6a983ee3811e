#include "isoloss/report/recipe_document.h"

#include <gtest/gtest.h>

#include "isoloss/document/text.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::report::recipe_document_test {
namespace {

using document::TextStyle;

std::string RecipeText(std::string_view resolved, const TextStyle& style) {
  return document::RenderText(RecipeDocument(resolved), style);
}

constexpr TextStyle kWide = {.width = 80};

TEST(RecipeDocument, TellsOnceWhatSeveralSitesGot) {
  precision::Recipe recipe = precision::RecipeByName("mxfp8_e5m2_grads");
  recipe.include = {"attention"};
  const std::vector<std::string> sites = {
      "layers.0.attention.wq", "layers.0.attention.wo", "layers.0.ffn.w1",
      "layers.1.attention.wq", "layers.1.attention.wo", "lm_head"};

  const std::string text =
      RecipeText(precision::ResolvedRecipe(recipe, sites).Describe(), kWide);

  EXPECT_EQ(text,
            "included by `attention`\n"
            "  fprop  e4m3·rceil x e4m3·rceil\n"
            "  dgrad  e5m2·rceil x e4m3·rceil\n"
            "  wgrad  e5m2·rceil x e4m3·rceil\n"
            "  layers.0.attention.wq, layers.0.attention.wo, "
            "layers.1.attention.wq,\n"
            "  layers.1.attention.wo\n"
            "not included\n"
            "  fprop  bf16 x bf16\n"
            "  dgrad  bf16 x bf16\n"
            "  wgrad  bf16 x bf16\n"
            "  layers.0.ffn.w1, lm_head\n");
}

TEST(RecipeDocument, LinesOfAnotherFormStandAsTheyAre) {
  // A log may hold any text.
  EXPECT_EQ(RecipeText("", kWide), "");
  EXPECT_EQ(RecipeText("lm_head\n", kWide), "  lm_head\n");
  EXPECT_EQ(RecipeText("a  b  (c", kWide), "  b      \n  (c     \n  a\n");
  EXPECT_EQ(RecipeText("a  (c)\n", kWide), "  (c)    \n  a\n");
}

}  // namespace
}  // namespace isoloss::report::recipe_document_test
