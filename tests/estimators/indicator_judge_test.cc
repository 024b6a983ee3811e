#include "isoloss/estimators/indicator_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::estimators::indicator_judge_test {
namespace {

/// Records of steps 5, 10, … of one indicator; others were not measured.
IndicatorRun RunWith(const std::string& arm, int64_t seed,
                     const std::vector<double>& values,
                     std::optional<int64_t> diverged_at = std::nullopt,
                     Indicator indicator = Indicator::kSwigluKurtosis) {
  IndicatorRun run{.mode = "lr_30",
                   .arm = arm,
                   .seed = seed,
                   .steps = {},
                   .values = {},
                   .diverged_at = diverged_at};
  for (const double value : values) {
    run.steps.push_back(5 * static_cast<int64_t>(run.steps.size() + 1));
    run.values.emplace_back().fill(std::nan(""));
    run.values.back()[static_cast<size_t>(indicator)] = value;
  }
  return run;
}

const RuleStatement& RuleOf(const IndicatorStatement& statement,
                            const std::string& name) {
  return *std::ranges::find_if(statement.rules, [&](const RuleStatement& rule) {
    return rule.rule.Name() == name;
  });
}

TEST(Indicators, AreCalibratedOnHealthyRunsOfOddSeeds) {
  // The level of arm a is 1.25 * 8 = 10: the run that diverged sets none, nor
  // does arm b.
  const IndicatorStatement statement =
      JudgeIndicators({RunWith("a", 1, {4, 8, 6}), RunWith("a", 3, {1000}, 5),
                       RunWith("b", 1, {100}), RunWith("a", 2, {9.9, 9.9, 9.9}),
                       RunWith("a", 4, {9, 10.1, 9}),
                       RunWith("a", 6, {4, 5, 12, 40, 900, 900}, 30),
                       RunWith("a", 8, {4, 5, 6, 12}, 20),
                       RunWith("a", 10, {4, 9.9, 11, 12, 13}, 20),
                       RunWith("c", 2, {900, 900}, 10)});

  const RuleStatement& rule = RuleOf(statement, "swiglu_kurtosis");
  EXPECT_NEAR(*rule.runs[5].level, std::log2(10.0), 1e-15);
  // Seed 6 alarms at step 15 and diverges at 30, seed 10 at 15 and 20; seed 8
  // alarms as it diverges, which announces nothing. Arm c has no level.
  EXPECT_EQ(rule.announced.count, 2);
  EXPECT_EQ(rule.announced.of, 3);
  EXPECT_EQ(rule.median_lead_steps, 10);
  EXPECT_EQ(rule.not_judged, 1);
  EXPECT_EQ(rule.false_alarms.count, 1);
  EXPECT_EQ(rule.false_alarms.of, 2);
  // Clopper and Pearson of 1 in 2: 1 - sqrt(0.975) and sqrt(0.975).
  EXPECT_NEAR(rule.false_alarms.lower, 1 - std::sqrt(0.975), 1e-12);
  EXPECT_NEAR(rule.false_alarms.upper, std::sqrt(0.975), 1e-12);
  EXPECT_EQ(rule.runs[3].first_alarm, std::nullopt);
  EXPECT_EQ(rule.runs[4].first_alarm, 10);
  EXPECT_EQ(rule.runs[6].first_alarm, 20);
  EXPECT_EQ(statement.Diverged(true), 4);
  EXPECT_EQ(statement.Diverged(false), 1);
  EXPECT_EQ(statement.Count(true), 6);
  // Nothing was measured for the others.
  EXPECT_EQ(RuleOf(statement, "sqnr").not_judged, 6);
}

TEST(Indicators, ThatFallAlarmBelow) {
  // 1.25 times less in amplitude are 20 log10(1.25) = 1.938 dB.
  const IndicatorStatement statement = JudgeIndicators(
      {RunWith("a", 1, {30, 28}, std::nullopt, Indicator::kSqnr),
       RunWith("a", 2, {26.1, 26.0}, std::nullopt, Indicator::kSqnr),
       RunWith("a", 4, {29, 26.1, 26.07}, std::nullopt, Indicator::kSqnr)});

  const RuleStatement& rule = RuleOf(statement, "sqnr");
  EXPECT_EQ(rule.runs[1].first_alarm, 10);
  EXPECT_EQ(rule.runs[2].first_alarm, std::nullopt);
}

TEST(Indicators, KnowTheFixedLevelOfGradientNoise) {
  const IndicatorStatement statement = JudgeIndicators(
      {RunWith("a", 2, {2, 1, 0.99, 3}, 20, Indicator::kGradientToNoise)});

  const RuleStatement& rule = RuleOf(statement, "gradient_to_noise below 1");
  EXPECT_EQ(rule.runs[0].first_alarm, 15);
  EXPECT_EQ(rule.announced.count, 1);
  EXPECT_EQ(rule.median_lead_steps, 5);
  EXPECT_EQ(RuleOf(statement, "gradient_to_noise").not_judged, 1);
}

TEST(Indicators, KnowDoublingTimesBeforeTheDivergence) {
  // Twice as much every 5 steps until step 15, a thousand times as much then.
  const IndicatorStatement statement = JudgeIndicators(
      {RunWith("a", 1, {1, 2, 4, 8192}, 20),
       RunWith("a", 2, {2, 4, 8, 4096}, 20), RunWith("a", 4, {3, 3, 3})});

  const RuleStatement& rule = RuleOf(statement, "swiglu_kurtosis");
  ASSERT_TRUE(rule.diverged_growth);
  EXPECT_NEAR(1 / rule.diverged_growth->rate, 5, 1e-12);
  EXPECT_EQ(rule.diverged_growth->count, 2);
  ASSERT_TRUE(rule.healthy_growth);
  EXPECT_EQ(rule.healthy_growth->rate, 0);
}

TEST(Indicators, TakeZeroForTheLeastAlarmingValue) {
  const IndicatorStatement statement = JudgeIndicators(
      {RunWith("a", 1, {0, 0}, std::nullopt, Indicator::kSaturation),
       RunWith("a", 2, {0, 0.1}, std::nullopt, Indicator::kSaturation),
       RunWith("a", 4, {0, 0}, std::nullopt, Indicator::kSaturation)});

  const RuleStatement& rule = RuleOf(statement, "saturation");
  EXPECT_EQ(rule.false_alarms.count, 1);
  EXPECT_EQ(rule.false_alarms.of, 2);
}

TEST(Indicators, KnowWhetherOneModeHasRunsOfBothFates) {
  IndicatorRun other = RunWith("a", 4, {1});
  other.mode = "plain";
  // The healthy run of lr_30 calibrates, and is not judged.
  EXPECT_FALSE(
      JudgeIndicators({RunWith("a", 1, {1}), RunWith("a", 2, {1}, 5), other})
          .ComparesWithinAMode());
  EXPECT_TRUE(
      JudgeIndicators({RunWith("a", 2, {1}, 5), RunWith("b", 4, {1}), other})
          .ComparesWithinAMode());
}

TEST(Indicators, RefuseNoRun) { EXPECT_THROW(JudgeIndicators({}), Error); }

}  // namespace
}  // namespace isoloss::estimators::indicator_judge_test
