#include "isoloss/precision/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::precision::recipe_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

/// Sites of a model with one dense and one MoE layer.
const std::vector<std::string> kSites = {"layers.0.attention.wq",
                                         "layers.0.attention.wkv_a",
                                         "layers.0.attention.wkv_b",
                                         "layers.0.attention.wo",
                                         "layers.0.feed_forward.w1",
                                         "layers.0.feed_forward.w2",
                                         "layers.1.attention.wo",
                                         "layers.1.moe.router.gate",
                                         "layers.1.moe.routed_experts.w1",
                                         "layers.1.moe.shared_experts.w1",
                                         "lm_head"};

std::vector<std::string> SitesWithout(std::string_view part) {
  std::vector<std::string> sites;
  for (const std::string& site : kSites) {
    if (site.find(part) == std::string::npos) sites.push_back(site);
  }
  return sites;
}

std::vector<std::string> Quantized(const ResolvedRecipe& resolved) {
  std::vector<std::string> names;
  for (const ResolvedSite& site : resolved.sites()) {
    if (site.quantized) names.push_back(site.site);
  }
  return names;
}

std::vector<std::string> RegisteredNames() {
  return {
#define ISOLOSS_RECIPE(name) #name,
#include "isoloss/precision/recipes.def"
#undef ISOLOSS_RECIPE
  };
}

// ---- What every registered recipe must satisfy ------------------------------

class RecipeConformance : public ::testing::TestWithParam<std::string> {
 protected:
  const Recipe& recipe() const { return RecipeByName(GetParam()); }
};

TEST_P(RecipeConformance, IsNamedDescribedAndSourced) {
  EXPECT_EQ(recipe().name, GetParam());
  EXPECT_FALSE(recipe().summary.empty());
  EXPECT_THAT(recipe().summary, Not(HasSubstr("\n")));
  EXPECT_FALSE(recipe().source.empty());
}

TEST_P(RecipeConformance, QuantisesRegisteredFormatsFromBf16Originals) {
  for (const GemmRole role : kGemmRoles) {
    const GemmPrecision& gemm = recipe().For(role);
    for (const auto& operand : {gemm.left, gemm.right}) {
      if (!operand) continue;
      EXPECT_EQ(recipe().activation, kernels::Rounding::kBf16);
      EXPECT_EQ(operand->element,
                &formats::FormatByName(operand->element->name));
    }
  }
}

TEST_P(RecipeConformance, SelectsSitesExactlyWhenItQuantises) {
  EXPECT_EQ(recipe().include.empty(), !recipe().quantizes());
}

TEST_P(RecipeConformance, ResolvesOnModelsThatLackOneKindOfLayer) {
  for (const std::string_view absent :
       {"none", "feed_forward", "shared_experts", "moe.", "lm_head"}) {
    SCOPED_TRACE(absent);
    const std::vector<std::string> sites = SitesWithout(absent);

    const ResolvedRecipe resolved(recipe(), sites);

    EXPECT_EQ(resolved.sites().size(), sites.size());
    EXPECT_EQ(resolved.quantized_gemms() > 0, recipe().quantizes());
  }
}

TEST_P(RecipeConformance, DescribesEverySiteOnItsOwnLine) {
  const std::string text = ResolvedRecipe(recipe(), kSites).Describe();

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kSites.size());
  size_t at = 0;
  for (const std::string& site : kSites) {
    EXPECT_EQ(text.compare(at, site.size(), site), 0) << text.substr(at);
    at = text.find('\n', at) + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, RecipeConformance,
                         ::testing::ValuesIn(RegisteredNames()),
                         [](const auto& test) { return test.param; });

// ---- What the built-in recipes are ------------------------------------------

/// Left and right operand of fprop, dgrad and wgrad.
std::string Operands(const Recipe& recipe) {
  const auto text = [](const std::optional<formats::Quantization>& operand) {
    return operand ? fmt::format("{} {}", operand->element->name,
                                 ScaleRuleName(operand->scale_rule))
                   : std::string("-");
  };
  return fmt::format("{}, {} | {}, {} | {}, {}", text(recipe.fprop.left),
                     text(recipe.fprop.right), text(recipe.dgrad.left),
                     text(recipe.dgrad.right), text(recipe.wgrad.left),
                     text(recipe.wgrad.right));
}

TEST(Recipes, GiveEachOperandTheDocumentedFormat) {
  const auto operands = [](std::string_view name) {
    return Operands(RecipeByName(name));
  };

  EXPECT_EQ(operands("bf16"), "-, - | -, - | -, -");
  EXPECT_EQ(operands("fp32"), "-, - | -, - | -, -");
  EXPECT_EQ(operands("mxfp8_rceil"),
            "e4m3 rceil, e4m3 rceil | e4m3 rceil, e4m3 rceil | "
            "e4m3 rceil, e4m3 rceil");
  EXPECT_EQ(operands("mxfp8_rceil_wgrad_with_hp"),
            "e4m3 rceil, e4m3 rceil | e4m3 rceil, e4m3 rceil | -, -");
  EXPECT_EQ(operands("mxfp8_floor"),
            "e4m3 floor, e4m3 floor | e4m3 floor, e4m3 floor | "
            "e4m3 floor, e4m3 floor");
  EXPECT_EQ(operands("mxfp8_e5m2_grads"),
            "e4m3 rceil, e4m3 rceil | e5m2 rceil, e4m3 rceil | "
            "e5m2 rceil, e4m3 rceil");
  EXPECT_EQ(operands("mxfp4_floor"),
            "e2m1 floor, e2m1 floor | e2m1 floor, e2m1 floor | "
            "e2m1 floor, e2m1 floor");
  EXPECT_EQ(RecipeByName("bf16").activation, kernels::Rounding::kBf16);
  EXPECT_EQ(RecipeByName("fp32").activation, kernels::Rounding::kFp32);
}

TEST(Recipes, AllAreListedInOrder) {
  std::vector<std::string> names;
  for (const Recipe* recipe : AllRecipes()) names.push_back(recipe->name);

  EXPECT_THAT(names, ElementsAreArray(RegisteredNames()));
}

TEST(Recipes, UnknownNameListsTheKnownOnesAndSuggestsTheNearest) {
  EXPECT_THAT(
      [] { RecipeByName("mxfp8_rciel"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("bf16, fp32, mxfp8_rceil"),
                                 HasSubstr("Did you mean `mxfp8_rceil`?"))));
}

// ---- Patterns
// ----------------------------------------------------------------

TEST(SiteMatches, FindsThePatternAnywhere) {
  EXPECT_TRUE(SiteMatches("attention", "layers.0.attention.wq"));
  EXPECT_TRUE(SiteMatches("layers.0.", "layers.0.attention.wq"));
  EXPECT_TRUE(SiteMatches("wq", "layers.0.attention.wq"));
  EXPECT_FALSE(SiteMatches("wk", "layers.0.attention.wq"));
  EXPECT_FALSE(SiteMatches("attention.wq.x", "layers.0.attention.wq"));
}

TEST(SiteMatches, StarStandsForAnyRunInOrder) {
  EXPECT_TRUE(SiteMatches("layers.*.wq", "layers.0.attention.wq"));
  EXPECT_TRUE(SiteMatches("a*t*n.wq", "layers.0.attention.wq"));
  EXPECT_TRUE(SiteMatches("*", "lm_head"));
  EXPECT_TRUE(SiteMatches("wq*", "layers.0.attention.wq"));
  EXPECT_FALSE(SiteMatches("wq*layers", "layers.0.attention.wq"));
  EXPECT_FALSE(SiteMatches("wq*q", "layers.0.attention.wq"));
}

TEST(SiteMatches, MarkAtTheEndIsNoPartOfThePattern) {
  EXPECT_TRUE(SiteMatches("wq?", "layers.0.attention.wq"));
  EXPECT_FALSE(SiteMatches("wo?", "layers.0.attention.wq"));
}

// ---- Resolving
// ----------------------------------------------------------------

TEST(ResolvedRecipe, QuantisesTorchtitansSitesByDefault) {
  const ResolvedRecipe resolved(RecipeByName("mxfp8_rceil"), kSites);

  std::vector<std::string> expected = kSites;
  std::erase(expected, "layers.1.moe.router.gate");
  std::erase(expected, "lm_head");
  EXPECT_THAT(Quantized(resolved), ElementsAreArray(expected));
}

TEST(ResolvedRecipe, LeavesOtherSitesAndHighPrecisionRolesAlone) {
  const ResolvedRecipe resolved(RecipeByName("mxfp8_rceil_wgrad_with_hp"),
                                kSites);

  EXPECT_TRUE(resolved.For(0, GemmRole::kFprop).quantized());
  EXPECT_TRUE(resolved.For(0, GemmRole::kDgrad).quantized());
  EXPECT_FALSE(resolved.For(0, GemmRole::kWgrad).quantized());
  EXPECT_FALSE(resolved.For(10, GemmRole::kFprop).quantized());
  // 9 of the 11 sites, two products each.
  EXPECT_EQ(resolved.quantized_gemms(), 18u);
}

TEST(ResolvedRecipe, UsersPatternsChooseTheSites) {
  Recipe recipe = RecipeByName("mxfp8_rceil");
  recipe.include = {"layers.0.*.w", "shared_experts"};
  recipe.exclude = {"wo", "wkv_*"};

  const ResolvedRecipe resolved(recipe, kSites);

  EXPECT_THAT(Quantized(resolved),
              ElementsAre("layers.0.attention.wq", "layers.0.feed_forward.w1",
                          "layers.0.feed_forward.w2",
                          "layers.1.moe.shared_experts.w1"));
}

TEST(ResolvedRecipe, DescribesWhatEachSiteGotAndWhy) {
  Recipe recipe = RecipeByName("mxfp8_e5m2_grads");
  recipe.include = {"attention"};
  recipe.exclude = {"wo"};
  const std::vector<std::string> sites = {"layers.0.attention.wq",
                                          "layers.0.attention.wo", "lm_head"};

  const std::string text = ResolvedRecipe(recipe, sites).Describe();

  EXPECT_EQ(text,
            "layers.0.attention.wq  fprop e4m3·rceil x e4m3·rceil  "
            "dgrad e5m2·rceil x e4m3·rceil  wgrad e5m2·rceil x e4m3·rceil  "
            "(included by `attention`)\n"
            "layers.0.attention.wo  fprop bf16 x bf16  dgrad bf16 x bf16  "
            "wgrad bf16 x bf16  (excluded by `wo`)\n"
            "lm_head                fprop bf16 x bf16  dgrad bf16 x bf16  "
            "wgrad bf16 x bf16  (not included)\n");
}

// ---- A pattern that does nothing is an error --------------------------------

void ExpectRejected(const Recipe& recipe, const std::vector<std::string>& sites,
                    const std::string& reason) {
  EXPECT_THAT([&] { ResolvedRecipe(recipe, sites); },
              ThrowsMessage<Error>(AllOf(HasSubstr("recipe " + recipe.name),
                                         HasSubstr(reason))));
}

TEST(ResolvedRecipe, RejectsAPatternThatMatchesNothing) {
  Recipe included = RecipeByName("mxfp8_rceil");
  included.include = {"attention", "fed_forward"};
  Recipe excluded = RecipeByName("mxfp8_rceil");
  excluded.exclude = {"wqb"};

  ExpectRejected(included, kSites, "Did you mean `feed_forward`?");
  ExpectRejected(excluded, kSites,
                 "exclude pattern `wqb` matches none of the model's 11");
}

TEST(ResolvedRecipe, AcceptsAPatternMarkedAsOptionalThatMatchesNothing) {
  Recipe recipe = RecipeByName("mxfp8_rceil");
  recipe.include = {"attention", "fed_forward?"};
  recipe.exclude = {"wqb?"};

  EXPECT_EQ(Quantized(ResolvedRecipe(recipe, kSites)).size(), 5u);
}

TEST(ResolvedRecipe, RejectsAnIncludeThatIsExcludedAgain) {
  Recipe recipe = RecipeByName("mxfp8_rceil");
  recipe.include.push_back("lm_head");

  ExpectRejected(recipe, kSites, "lm_head: excluded by `lm_head`");
}

TEST(ResolvedRecipe, RejectsARecipeThatSelectsNothing) {
  Recipe recipe = RecipeByName("mxfp8_rceil");
  recipe.include = {"fed_forward?"};

  ExpectRejected(recipe, kSites, "select none of the model's 11 GEMM sites");
}

TEST(ResolvedRecipe, RejectsPatternsWithoutTextOrWithoutUse) {
  Recipe empty = RecipeByName("mxfp8_rceil");
  empty.include = {""};
  Recipe bf16 = RecipeByName("bf16");
  bf16.include = {"attention"};

  ExpectRejected(empty, kSites, "must contain text");
  ExpectRejected(bf16, kSites, "the recipe quantises nothing");
}

}  // namespace
}  // namespace isoloss::precision::recipe_test
