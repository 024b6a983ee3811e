#include "isoloss/train/numerics_digest.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::train::numerics_digest_test {
namespace {

using expert_parallel::Algorithm;
using expert_parallel::CombineOrder;
using expert_parallel::ExchangeOptions;
using expert_parallel::WeightSite;

uint64_t DigestOfArm(const Arm& arm, int threads = 1) {
  Executor executor(threads);
  return NumericsDigest(arm, executor);
}

Arm ArmOf(const std::string& recipe, const ExchangeOptions& options = {}) {
  Arm arm;
  arm.recipe = recipe;
  arm.exchange.options = options;
  arm.exchange.weight_site = options.weight_site;
  return arm;
}

TEST(NumericsDigest, DependsNeitherOnThreadsNorOnTheInstructionSet) {
  ExchangeOptions node;
  node.algorithm = Algorithm::kNode;
  node.weight_site = WeightSite::kExpertOut;
  node.payload = "mx1x32";
  for (const Arm& arm : {ArmOf("bf16"), ArmOf("mxfp8_rceil", node)}) {
    const uint64_t expected = DigestOfArm(arm);
    EXPECT_EQ(DigestOfArm(arm), expected) << "again";
    EXPECT_EQ(DigestOfArm(arm, 2), expected) << "2 threads";
    EXPECT_EQ(DigestOfArm(arm, 5), expected) << "5 threads";
    for (const std::string& target : kernels::SupportedTargets()) {
      kernels::ForceTarget(target);
      EXPECT_EQ(DigestOfArm(arm), expected) << target;
    }
    kernels::ForceTarget("");
  }
}

TEST(NumericsDigest, EveryRecipeHasItsOwn) {
  // Two are other names of what exists, and one differs in what becomes of a
  // NaN, which the run of the digest does not meet.
  const std::set<std::string> twins = {"mxfp8_cublas", "mxfp8_cublas_rceil",
                                       "te_mxfp8"};
  std::map<uint64_t, std::string> seen;
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    if (twins.contains(recipe->name)) continue;
    const auto [other, is_new] =
        seen.emplace(DigestOfArm(ArmOf(recipe->name)), recipe->name);
    EXPECT_TRUE(is_new) << recipe->name << " and " << other->second;
  }
}

TEST(NumericsDigest, EveryExchangeHasItsOwn) {
  std::vector<std::pair<std::string, ExchangeOptions>> exchanges;
  const auto add = [&](const std::string& name, auto change) {
    ExchangeOptions options;
    options.algorithm = Algorithm::kNode;
    options.weight_site = WeightSite::kExpertOut;
    change(options);
    exchanges.emplace_back(name, options);
  };
  add("node", [](auto&) {});
  add("flat", [](auto& o) {
    o.algorithm = Algorithm::kFlat;
    o.weight_site = WeightSite::kSource;
  });
  add("rank", [](auto& o) { o.algorithm = Algorithm::kRank; });
  add("titan_bf16", [](auto& o) { o.algorithm = Algorithm::kTitanBf16; });
  add("before_fc2", [](auto& o) { o.weight_site = WeightSite::kBeforeFc2; });
  for (const char* payload : {"mx1x32", "e4m3_1x128_pow2", "e4m3_1x128_fp32"}) {
    add(payload, [&](auto& o) { o.payload = payload; });
    add(std::string("gradients ") + payload,
        [&](auto& o) { o.gradient_payload = payload; });
  }

  std::map<uint64_t, std::string> seen;
  for (const auto& [name, options] : exchanges) {
    const auto [other, is_new] =
        seen.emplace(DigestOfArm(ArmOf("bf16", options)), name);
    EXPECT_TRUE(is_new) << name << " and " << other->second;
  }
}

TEST(NumericsDigest, OrderOfNodesShowsWhereItChangesBits) {
  // In FP32: the FP32 sum of a few BF16 values of like size is exact.
  ExchangeOptions options;
  options.algorithm = Algorithm::kNode;
  options.weight_site = WeightSite::kExpertOut;
  const uint64_t by_rank = DigestOfArm(ArmOf("fp32", options));

  options.order = CombineOrder::kLastSlot;

  EXPECT_NE(DigestOfArm(ArmOf("fp32", options)), by_rank);
}

TEST(NumericsDigest, NameAndPatternsOfTheArmAreNoNumerics) {
  Arm arm = ArmOf("mxfp8_rceil");
  const uint64_t expected = DigestOfArm(arm);

  arm.name = "trial";
  arm.include = {"layers.17.attention"};
  arm.exclude = {"nothing"};

  EXPECT_EQ(DigestOfArm(arm), expected);
  EXPECT_THROW(DigestOfArm(ArmOf("no_such_recipe")), Error);
}

// The head is no site of the run of the digest.
TEST(NumericsDigest, TakesRecipesWithOverridesForOtherSitesThanItsOwn) {
  precision::Recipe recipe = precision::RecipeByName("mxfp8_rceil");
  recipe.name = "with_head";
  recipe.overrides.push_back(
      {{"lm_head"}, precision::RecipeByName("mxfp4_floor")});
  Arm arm;
  arm.Use(recipe);

  EXPECT_EQ(DigestOfArm(arm), DigestOfArm(ArmOf("mxfp8_rceil")));
}

}  // namespace
}  // namespace isoloss::train::numerics_digest_test
