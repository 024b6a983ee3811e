#include "isoloss/estimators/site_findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "planted_losses.h"

namespace isoloss::estimators::site_findings_test {
namespace {

constexpr double kRunNoise = 0.003;  // a thousandth of the loss, as in MXFP8

/// Products of sites k0, k1, ...; the last one saves no time.
SiteEvidence EvidenceOf(const std::vector<double>& harms, size_t seeds,
                        uint64_t draw = 1) {
  SiteEvidence evidence;
  evidence.arms = PlantedDesign(harms, kRunNoise, seeds, draw);
  for (size_t product = 0; product < harms.size(); ++product) {
    evidence.products.push_back(
        {.kind = "k" + std::to_string(product),
         .saved_seconds = product + 1 == harms.size()
                              ? -1.0
                              : static_cast<double>(product + 1)});
  }
  evidence.speed_up = [](std::span<const size_t> products) {
    double speed = 1;
    for (const size_t product : products) {
      speed += 0.01 * static_cast<double>(product + 1);
    }
    return speed;
  };
  return evidence;
}

std::vector<double> Planted(size_t products, size_t sensitive) {
  std::vector<double> harms(products, 0.0);
  harms[sensitive] = 0.06;  // 2 % of the loss
  return harms;
}

TEST(SiteFindings, RankThePlantedProductFirstAndKeepItOutOfTheRecipe) {
  const SiteEvidence evidence = EvidenceOf(Planted(12, 4), 6);

  const SiteFindings findings = JudgeSites(evidence);

  EXPECT_EQ(findings.ranked.front().product, 4U);
  EXPECT_LT(findings.ranked.front().adjusted, 1e-6);
  EXPECT_GT(findings.ranked.front().harm.lower, 0);
  // Of 11 without harm the adjusted p-values are below 0.05 with a chance of at
  // most that.
  EXPECT_GE(findings.ranked[1].adjusted, kHarmful);
  ASSERT_TRUE(findings.recipe);
  EXPECT_EQ(std::ranges::count(findings.recipe->set.products, 4), 0);
  EXPECT_EQ(findings.recipe->set.products.size(), 10U) << "all but 4 and 11";
  EXPECT_LT(findings.recipe->predicted.upper, findings.margin_nats);
  EXPECT_NEAR(findings.margin_nats, 0.0025 * 3, 0.0025 * 0.06);
}

TEST(SiteFindings, AddHarmlessProductsByTimeAndHarmfulOnesLast) {
  const SiteEvidence evidence = EvidenceOf(Planted(6, 2), 6);

  const SiteFindings findings = JudgeSites(evidence);

  std::vector<std::string> steps;
  for (const SetFinding& step : findings.frontier) {
    steps.push_back(step.set.name);
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"nothing", "+ k4 fprop",
                                             "+ k3 fprop", "+ k1 fprop",
                                             "+ k0 fprop", "+ k2 fprop"}))
      << "k5 saves nothing";
  EXPECT_GT(findings.frontier.back().speed_up,
            findings.frontier.front().speed_up);
}

TEST(SiteFindings, ARecipeIsTriedWithOtherSeeds) {
  SetFinding recipe;
  recipe.predicted = {0.01, 0.006, 0.014};
  const ArmLosses baseline{.name = "b", .products = {}, .losses = {2, 3, 4}};
  const ArmLosses arm{
      .name = "a", .products = {1}, .losses = {2.019, 3.02, 4.021}};

  CompareAfresh(baseline, arm, recipe);

  // Mean 0.02, sd 0.001 of 3 seeds: 4.302653 (Student's t of 0.975 and 2) times
  // 0.001 / sqrt(3).
  const double reach = 4.302653 * 0.001 / std::sqrt(3.0);
  EXPECT_NEAR(recipe.measured->upper, 0.02 + reach, 1e-8);
  EXPECT_NEAR(recipe.difference->mean, 0.01, 1e-12);
  EXPECT_NEAR(recipe.difference->lower, 0.01 - std::hypot(reach, 0.004), 1e-8);
  EXPECT_FALSE(recipe.inside());
  EXPECT_TRUE(recipe.safe(0.025));
  EXPECT_FALSE(recipe.safe(0.02));
}

TEST(SiteFindings, ARecipeThatDivergesIsNeitherInsideNorSafe) {
  SetFinding recipe;
  recipe.predicted = {0.01, 0.006, 0.014};
  CompareAfresh({.name = "b", .products = {}, .losses = {2, 3}},
                {.name = "a",
                 .products = {1},
                 .losses = {2, std::numeric_limits<double>::quiet_NaN()}},
                recipe);
  EXPECT_FALSE(recipe.inside());
  EXPECT_FALSE(recipe.safe(1));
}

// The seeds of the prediction are those of the measurement. What adds up lies
// inside its interval 95 times in 100: of 200 designs in 190, give or take 4.5
// standard deviations of 3.1.
TEST(SiteFindings, HoldSetsAgainstTheirRuns) {
  const std::vector<double> harms = Planted(8, 2);
  constexpr uint64_t kDraws = 200;
  int inside = 0;
  int inside_though_not_additive = 0;
  int covered = 0;
  for (uint64_t draw = 1; draw <= kDraws; ++draw) {
    SiteEvidence evidence = EvidenceOf(harms, 6, draw);
    evidence.sets = {{.name = "additive", .products = {1, 2}},
                     {.name = "not additive", .products = {3, 4}}};
    evidence.set_losses = {
        PlantedArm("a", {1, 2}, harms, kRunNoise, 6, 1000 * draw + 500),
        PlantedArm("b", {2}, harms, kRunNoise, 6, 1000 * draw + 501)};

    const SiteFindings findings = JudgeSites(evidence);

    ASSERT_EQ(findings.sets.size(), 3U);
    EXPECT_EQ(findings.sets[0].set.name, "every product");
    const stats::MeanInterval& predicted = findings.sets[1].predicted;
    covered += predicted.lower <= 0.06 && 0.06 <= predicted.upper ? 1 : 0;
    inside += findings.sets[1].inside() ? 1 : 0;
    inside_though_not_additive += findings.sets[2].inside() ? 1 : 0;
  }
  EXPECT_NEAR(inside, 190, 14);
  // The wider of two intervals: at least so often.
  EXPECT_GE(covered, 190 - 14);
  // 0.06 is off by some 20 standard errors.
  EXPECT_EQ(inside_though_not_additive, 0);
}

TEST(SiteFindings, ChooseANamedSetIfItIsFasterThanTheFrontierIsSafe) {
  SiteEvidence evidence = EvidenceOf({0.02, 0, 0, 0, 0, 0, 0, 0, 0.02, 0}, 6);
  evidence.sets = {{.name = "mine", .products = {1, 2, 3, 4, 9}}};
  evidence.set_losses = {PlantedArm(
      "mine", {1, 2, 3, 4, 9}, std::vector<double>(10, 0.0), kRunNoise, 6, 77)};
  evidence.speed_up = [](std::span<const size_t> products) {
    return products.size() == 4 && products.front() == 1
               ? 2.0
               : 1.0 + 1e-3 * static_cast<double>(products.size());
  };

  const SiteFindings findings = JudgeSites(evidence);

  ASSERT_TRUE(findings.recipe);
  EXPECT_EQ(findings.recipe->set.name, "mine without what saves nothing");
  EXPECT_EQ(findings.recipe->set.products, (std::vector<size_t>{1, 2, 3, 4}));
}

TEST(SiteFindings, PutUnstableProductsFirst) {
  SiteEvidence evidence = EvidenceOf(Planted(6, 2), 4);
  evidence.arms[2 + 3].losses[1] = std::numeric_limits<double>::infinity();

  const SiteFindings findings = JudgeSites(evidence);

  EXPECT_EQ(findings.ranked.front().product, 3U);
  EXPECT_TRUE(findings.ranked.front().unstable);
  EXPECT_EQ(findings.ranked[1].product, 2U);
  EXPECT_FALSE(findings.notes.empty());
  for (const SetFinding& step : findings.frontier) {
    EXPECT_EQ(std::ranges::count(step.set.products, 3), 0);
  }
}

TEST(SiteFindings, NameNoRecipeIfNoneIsSafe) {
  SiteEvidence evidence = EvidenceOf(std::vector<double>(4, 0.06), 6);

  EXPECT_FALSE(JudgeSites(evidence).recipe);
}

}  // namespace
}  // namespace isoloss::estimators::site_findings_test
