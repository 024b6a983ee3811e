// Attention and gains of norms in recipes: read, written, refused, described.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/precision/recipe_file.h"
#include "support/outside_recipes.h"

namespace isoloss::precision::recipe_attention_test {
namespace {

using isoloss::test_support::kCutAttention;
using isoloss::test_support::kMxGains;
using isoloss::test_support::kTeAttention;
using isoloss::test_support::OutsideRecipes;
using isoloss::test_support::RecipeFrom;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const std::vector<std::string> kSites = {"layers.0.attention.wq", "lm_head"};

TEST(RecipeFile, ReadsWhatItWritesOfAttentionAndGains) {
  for (const Recipe& recipe : OutsideRecipes()) {
    const std::string text = RecipeText(recipe);

    const Recipe again = RecipeFrom(text);

    EXPECT_TRUE(again.SameContent(recipe)) << text;
    EXPECT_EQ(RecipeText(again), text);
  }
}

TEST(RecipeFile, GivesEachOperandOfAttentionItsOwnDescription) {
  const AttentionPrecision attention = RecipeFrom(kTeAttention).attention;

  EXPECT_EQ(OperandName(attention.q), "e4m3·te·fp32·0x0·te");
  EXPECT_EQ(OperandName(attention.d_scores), "e5m2·te·fp32·0x0·te");
  EXPECT_EQ(attention.Scores().wgrad.left, attention.d_scores);
  EXPECT_EQ(attention.Scores().wgrad.right, attention.q);
  EXPECT_EQ(attention.Values().dgrad.right, attention.v);
}

TEST(RecipeFile, LeavesTheBackwardPassAloneWithoutDescribedGradients) {
  const AttentionPrecision attention =
      RecipeFrom(isoloss::test_support::kFa3Attention).attention;

  for (const LinearPrecision& products :
       {attention.Scores(), attention.Values()}) {
    EXPECT_TRUE(products.fprop.quantized());
    EXPECT_FALSE(products.dgrad.quantized());
    EXPECT_FALSE(products.wgrad.quantized());
  }
}

/// What else is no difference, a description of one operand is one.
TEST(RecipeFile, TellsRecipesApartByEveryOperand) {
  const Recipe whole = RecipeFrom(kTeAttention);
  for (const auto& [key, operand] : kAttentionOperands) {
    Recipe other = whole;
    (other.attention.*operand).reset();
    EXPECT_FALSE(other.SameContent(whole)) << key;
    EXPECT_NE(RecipeText(other), RecipeText(whole)) << key;
    EXPECT_NE(ResolvedRecipe(other, kSites).Describe(),
              ResolvedRecipe(whole, kSites).Describe())
        << key;
  }
  Recipe gains = RecipeFrom(kMxGains);
  gains.norm_gains->scale_rule = formats::ScaleRule::kRceil;
  EXPECT_FALSE(gains.SameContent(RecipeFrom(kMxGains)));
}

TEST(RecipeFile, DescribesAttentionAndGainsBehindTheSites) {
  Recipe recipe = RecipeFrom(kCutAttention);
  recipe.norm_gains = RecipeFrom(kMxGains).norm_gains;

  const std::string text = ResolvedRecipe(recipe, kSites).Describe();

  EXPECT_THAT(text,
              EndsWith("(not included)\n"
                       "attention  p bf16·none·toward_zero  (all layers)\n"
                       "norm_gains  e4m3·floor·stochastic16  (all norms)\n"));
  EXPECT_FALSE(recipe.quantizes());
  EXPECT_TRUE(recipe.quantizes_anything());
}

TEST(RecipeFile, SaysNothingOfThemInOtherRecipes) {
  for (const Recipe* recipe : AllRecipes()) {
    EXPECT_THAT(RecipeText(*recipe), AllOf(Not(HasSubstr("attention]")),
                                           Not(HasSubstr("norm_gains"))));
    EXPECT_EQ(recipe->quantizes_anything(), recipe->quantizes());
  }
}

struct Refusal {
  const char* name;
  const char* text;  ///< behind the name of the recipe
  const char* message;
};
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

class RefusedRecipe : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedRecipe, IsNamedWithItsPlace) {
  const std::string text = std::string("name = \"mine\"\n") + GetParam().text;

  EXPECT_THAT([&] { RecipeFrom(text); },
              ThrowsMessage<Error>(AllOf(HasSubstr("recipe.toml:"),
                                         HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(
    OfAttentionAndGains, RefusedRecipe,
    ::testing::Values(
        Refusal{"UnknownKey", "[attention]\no = \"x\"\n", "unknown key"},
        Refusal{"UnknownOperand",
                "[operands.a]\nelement = \"e4m3\"\n[attention]\np = \"b\"\n",
                "`attention.p`"},
        Refusal{"UnknownGains", "norm_gains = \"b\"\n", "`norm_gains`"},
        Refusal{"DelayedAttention",
                R"([attention]
ds = "o"
[operands.o]
element = "e4m3"
scaling = "delayed"
history = 4
block_rows = 0
block_columns = 0
scale_format = "fp32"
scale_rule = "te"
)",
                "has `ds` as e4m3·te·fp32·0x0·delayed·history4, which has "
                "delayed scaling, but only linear layers keep a history"},
        Refusal{"DelayedGains",
                R"(norm_gains = "o"
[operands.o]
element = "e4m3"
scaling = "delayed"
history = 4
block_rows = 0
block_columns = 0
scale_format = "fp32"
scale_rule = "te"
)",
                "only linear layers keep a history"},
        Refusal{"TransformedAttention",
                "[operands.o]\nelement = \"e4m3\"\ntransform = "
                "\"hadamard16\"\n[attention]\nq = \"o\"\nk = \"o\"\n",
                "only linear layers transform operands"},
        Refusal{"ScalesThatDoNotMeet",
                R"([operands.a]
element = "e4m3"
block_columns = 32
scale_format = "fp32"
scale_rule = "te"
[operands.b]
element = "e4m3"
block_columns = 48
scale_format = "fp32"
scale_rule = "te"
[attention]
p = "a"
v = "b"
)",
                "has a product P V that has scales of the operands every 32 "
                "and 48 steps"}),
    [](const auto& refusal) { return std::string(refusal.param.name); });

/// Recipes that no file was read from.
TEST(ResolvedRecipe, RefusesWrongAttentionAndGains) {
  Recipe recipe = RecipeFrom(kCutAttention);
  recipe.attention.p->random_bits = 3;
  EXPECT_THAT([&] { ResolvedRecipe(recipe, kSites); },
              ThrowsMessage<Error>(HasSubstr("recipe cut_attention: attention "
                                             "has `p` as")));
  recipe = RecipeFrom(kMxGains);
  recipe.norm_gains->random_bits = 0;
  EXPECT_THAT([&] { ResolvedRecipe(recipe, kSites); },
              ThrowsMessage<Error>(HasSubstr("recipe mx_gains: norm_gains")));
}

TEST(ResolvedRecipe, RejectsPatternsOfARecipeThatQuantisesAttentionOnly) {
  Recipe recipe = RecipeFrom(kCutAttention);
  recipe.include = {"wq"};

  EXPECT_THAT([&] { ResolvedRecipe(recipe, kSites); },
              ThrowsMessage<Error>(HasSubstr("nothing at GEMM sites")));
}

}  // namespace
}  // namespace isoloss::precision::recipe_attention_test
