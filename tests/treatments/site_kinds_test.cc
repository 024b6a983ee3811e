#include "isoloss/treatments/site_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/precision/recipe_file.h"
#include "isoloss/precision/site_presets.h"
#include "support/expect_refused.h"

namespace isoloss::treatments::site_kinds_test {
namespace {

using precision::GemmRole;
using precision::Recipe;
using precision::RecipeByName;
using test_support::ExpectRefused;

model::ModelConfig LowRankModel() {
  model::ModelConfig config;
  config.q_lora_rank = 16;
  config.n_layers = 3;
  return config;
}

SiteProducts Products() {
  return SiteProducts(RecipeByName("mxfp8_rceil"), LowRankModel());
}

/// Place of a product.
size_t PlaceOf(const SiteProducts& products, const std::string& kind,
               GemmRole role) {
  const auto found = std::ranges::find_if(
      products.products(), [&](const SiteProducts::Entry& p) {
        return p.kind == kind && p.role == role;
      });
  EXPECT_NE(found, products.products().end()) << kind;
  return static_cast<size_t>(found - products.products().begin());
}

/// "layers.0.attention.wq_a fprop" of all that a recipe quantises.
std::vector<std::string> QuantizedBy(const Recipe& recipe) {
  const auto sites = model::GemmSites(LowRankModel());
  const precision::ResolvedRecipe resolved(recipe, sites);
  std::vector<std::string> names;
  for (size_t i = 0; i < sites.size(); ++i) {
    for (const GemmRole role : precision::kGemmRoles) {
      if (resolved.For(i, role).quantized()) {
        names.push_back(sites[i].name + " " +
                        std::string(precision::GemmRoleName(role)));
      }
    }
  }
  return names;
}

TEST(SiteKinds, AreNamesWithoutLayers) {
  EXPECT_EQ(KindOf("layers.12.attention.wq_b"), "attention.wq");
  EXPECT_EQ(KindOf("layers.0.attention.wq"), "attention.wq");
  EXPECT_EQ(KindOf("layers.0.attention.wkv_a"), "attention.wkv_a");
  EXPECT_EQ(KindOf("layers.3.moe.routed_experts.w1"), "routed_experts.w1");
  EXPECT_EQ(KindOf("layers.3.moe.router.gate"), "router.gate");
  EXPECT_EQ(KindOf("lm_head"), "lm_head");
}

TEST(SiteKinds, MatchTheirOwnSitesAlone) {
  const auto sites = model::GemmSites(LowRankModel());
  for (const precision::Site& a : sites) {
    for (const precision::Site& b : sites) {
      EXPECT_EQ(precision::SiteMatches(KindOf(a.name), b.name),
                KindOf(a.name) == KindOf(b.name))
          << a.name << " and " << b.name;
    }
  }
}

TEST(SiteProducts, AreAllProductsOfAllKindsWhateverTheRecipeChooses) {
  // wq, wkv_a, wkv_b, wo, three of each feed-forward, gate and head.
  EXPECT_EQ(Products().products().size(), 15U * 3);
}

TEST(SiteProducts, AloneQuantiseOneProductOfOneKind) {
  const SiteProducts products = Products();
  const size_t place = PlaceOf(products, "attention.wq", GemmRole::kDgrad);

  const Recipe recipe = products.RecipeOf(std::vector{place}, "alone");

  EXPECT_THAT(
      QuantizedBy(recipe),
      ::testing::ElementsAre(
          "layers.0.attention.wq_a dgrad", "layers.0.attention.wq_b dgrad",
          "layers.1.attention.wq_a dgrad", "layers.1.attention.wq_b dgrad",
          "layers.2.attention.wq_a dgrad", "layers.2.attention.wq_b dgrad"));
  EXPECT_EQ(products.ProductsOf(recipe), std::vector{place});
}

// Every subset that the study trains or writes comes back as it was, from the
// recipe and from its file.
TEST(SiteProducts, RecipesHaveTheirProductsAndReadBack) {
  const SiteProducts products = Products();
  std::vector<std::vector<size_t>> subsets = {
      products.AllBut({}), {0, 1, 2, 5, 17, 18, 30, 44}, {3}};
  for (size_t product = 0; product < products.products().size(); ++product) {
    subsets.push_back(products.AllBut(std::vector{product}));
  }
  for (const std::vector<size_t>& subset : subsets) {
    const Recipe recipe = products.RecipeOf(subset, "some_sites");
    EXPECT_EQ(products.ProductsOf(recipe), subset);
    const Recipe read =
        precision::ParseRecipe(precision::RecipeText(recipe), "recipe.toml");
    EXPECT_TRUE(read.SameContent(recipe)) << precision::RecipeText(recipe);
    EXPECT_EQ(read.name, "some_sites");
  }
}

TEST(SiteProducts, ThatQuantiseAgainNeedTheFirstTime) {
  const SiteProducts products(RecipeByName("deepseek_v3_fp8"), LowRankModel());
  const size_t wgrad = PlaceOf(products, "attention.wo", GemmRole::kWgrad);
  const size_t fprop = PlaceOf(products, "attention.wo", GemmRole::kFprop);
  ASSERT_TRUE(RecipeByName("deepseek_v3_fp8").wgrad.right_again);

  const Recipe alone = products.RecipeOf(std::vector{wgrad}, "alone");
  const Recipe both = products.RecipeOf(std::vector{fprop, wgrad}, "both");

  EXPECT_FALSE(alone.wgrad.right_again);
  EXPECT_TRUE(both.wgrad.right_again);
  EXPECT_EQ(products.ProductsOf(alone), std::vector{wgrad});
}

TEST(SiteProducts, OfPublishedFilters) {
  const SiteProducts products = Products();
  const auto presets = precision::AllSitePresets();
  const auto scout =
      std::ranges::find(presets, "llama4_scout", &precision::SitePreset::name);

  const auto chosen = products.ProductsAt(scout->include, scout->exclude);

  // All but wkv_a, wkv_b, gate and head.
  EXPECT_EQ(chosen.size(), (15U - 4) * 3);
  EXPECT_EQ(std::ranges::count(
                chosen, PlaceOf(products, "attention.wkv_b", GemmRole::kFprop)),
            0);
}

TEST(SiteProducts, TellTheSpeedModelTheirFormats) {
  const SiteProducts mxfp8 = Products();
  const SiteProducts mxfp4(RecipeByName("mxfp4_floor"), LowRankModel());
  const size_t place = PlaceOf(mxfp8, "attention.wo", GemmRole::kWgrad);

  const estimators::QuantizedProduct product = mxfp8.Quantized(place);

  EXPECT_EQ(product.kind, "attention.wo");
  EXPECT_EQ(product.role, 2U);
  EXPECT_EQ(product.format.left_bits, 8.25);
  EXPECT_EQ(product.format.multiply_bits, 8);
  EXPECT_EQ(mxfp4.Quantized(0).format.right_bits, 4.25);
  EXPECT_EQ(mxfp4.Quantized(0).format.multiply_bits, 4);
}

TEST(SiteProducts, RefuseWhatIsNoQuestion) {
  ExpectRefused([] { SiteProducts(RecipeByName("bf16"), LowRankModel()); },
                "quantises no product");
  Recipe recipe = RecipeByName("mxfp8_rceil");
  recipe.overrides.push_back(
      {{"layers.0.attention.wo"}, RecipeByName("mxfp4_floor")});
  ExpectRefused([&] { SiteProducts(recipe, LowRankModel()); },
                "takes all layers alike");
}

}  // namespace
}  // namespace isoloss::treatments::site_kinds_test
