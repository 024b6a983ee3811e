// Several candidates share a baseline, and so the chance of a false PASS.
#include "isoloss/verdicts/judge_arms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/gate/pairs_needed.h"
#include "support/control_arms.h"

namespace isoloss::verdicts::judge_arms_test {
namespace {

using Runs = std::vector<compare::Run>;

/// A baseline and one arm for each list of percents.
Runs Arms(const std::vector<std::vector<double>>& arms) {
  Runs runs = test_support::SyntheticExperiment(arms[0]);
  std::erase_if(runs, [](const compare::Run& run) {
    return run.log.provenance.arm != "bf16";
  });
  for (size_t i = 0; i < arms.size(); ++i) {
    for (compare::Run& run :
         test_support::ArmRuns(fmt::format("arm{}", i), arms[i])) {
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

// Of 4 pairs: the mean 0.019 % and the standard deviation 0.146 % make an upper
// end of 0.019 + 2.353 * 0.073 = 0.191 % at alpha, and of 0.019 + 3.182 * 0.073
// = 0.2512 % at half of it. The test for rare harm has level 0.05 / 0.706:
// 0.019
// + 1.99 * 0.073 = 0.164 % lies below 2/3 of the margin, 0.1667 %.
const std::vector<double> kClose = {-0.1074, -0.1074, 0.1454, 0.1454};
const std::vector<double> kGood = {0.01, 0.02, -0.01, -0.02};
const std::vector<double> kBad = {0.9, 1.0, 1.1, 1.0};

gate::Outcome OutcomeOfFirst(const std::vector<std::vector<double>>& arms) {
  const auto judgements = JudgeArms(Arms(arms), "bf16", {});
  return judgements.front().outcome;
}

TEST(JudgeArms, SharesAlphaAmongCandidatesThatAreNotShown) {
  EXPECT_EQ(OutcomeOfFirst({kClose}), gate::Outcome::kPass);
  // Holm: what is shown at half of alpha leaves all of alpha to the other.
  EXPECT_EQ(OutcomeOfFirst({kClose, kGood}), gate::Outcome::kPass);
  EXPECT_EQ(OutcomeOfFirst({kClose, kBad}), gate::Outcome::kInconclusive);

  const auto judgements = JudgeArms(Arms({kClose, kBad}), "bf16", {});
  EXPECT_EQ(judgements[0].policy.sharing, 2);
  EXPECT_EQ(judgements[0].policy.alpha, 0.05);
}

// At two thirds of the margin `rare_harm` decides: an arm of 2 pairs passes
// with probability alpha / (11 / 12)^2 = 1.19 alpha. With alpha each, one of 5
// arms passes in 26.4 % of the sets, with a fifth of it each in 5.8 %. The
// standard error of 5.8 % is sqrt(5.8 * 94.2 / 100) = 2.3 %; four of them
// are 9.4 %.
TEST(JudgeArms, PassOneOfFiveAtTheLimitOfRareHarmSeldom) {
  constexpr int kSets = 100;
  std::mt19937_64 random(20260101);
  std::normal_distribution<double> spread(gate::kRareMean * 0.25, 0.002);
  int passed = 0;
  for (int set = 0; set < kSets; ++set) {
    std::vector<std::vector<double>> arms(5, std::vector<double>(2));
    for (auto& arm : arms) {
      for (double& percent : arm) percent = spread(random);
    }
    const auto judgements = JudgeArms(Arms(arms), "bf16", {});
    passed += std::ranges::any_of(judgements, [](const auto& judgement) {
      return judgement.outcome == gate::Outcome::kPass;
    });
  }
  EXPECT_GT(passed, 0);
  EXPECT_LT(100.0 * passed / kSets, 15.2);
}

TEST(ForPrecision, TakesTheExperimentsMarginOrThatOfOurs) {
  EXPECT_EQ(ForPrecision({}, "").margin_percent, gate::kOwnMarginPercent);
  EXPECT_EQ(ForPrecision({}, "[gate]\nmargin_percent = 0.5\n").margin_percent,
            0.5);
  const gate::Policy chosen = gate::WithMargin({}, 0.3, "--margin");
  EXPECT_EQ(
      ForPrecision(chosen, "[gate]\nmargin_percent = 0.5\n").margin_percent,
      0.3);
  const gate::Policy file = gate::ParsePolicy("margin_percent = 0.25\n", "x");
  EXPECT_EQ(ForPrecision(file, "").margin_percent, 0.25);
  const gate::Policy dense = gate::ParsePolicy("margin_percent=0.05\n", "x");
  EXPECT_EQ(ForPrecision(dense, "").margin_percent, 0.05);
  EXPECT_EQ(ForPrecision(gate::ParsePolicy("min_seeds = 3\n", "x"), "")
                .margin_percent,
            gate::kOwnMarginPercent);
  gate::Policy regression;
  regression.question = compare::Question::kRegression;
  EXPECT_EQ(ForPrecision(regression, "").margin_percent, 0.25);
}

TEST(JudgeArms, TakeNoMarginFromLogsThatDisagree) {
  Runs runs = Arms({kGood});
  for (compare::Run& run : runs) {
    run.log.provenance.experiment_text = "[gate]\nmargin_percent = 0.5\n";
  }
  EXPECT_EQ(ForPrecision({}, runs).margin_percent, 0.5);

  runs.back().log.provenance.experiment_text =
      "[gate]\nmargin_percent = 40.0\n";
  EXPECT_THROW(ForPrecision({}, runs), Error);
  const gate::Policy chosen = gate::WithMargin({}, 0.3, "--margin");
  EXPECT_EQ(ForPrecision(chosen, runs).margin_percent, 0.3);
}

}  // namespace
}  // namespace isoloss::verdicts::judge_arms_test
