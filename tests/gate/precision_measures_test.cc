#include "isoloss/gate/precision_measures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/stats/power.h"
#include "judged_runs.h"

namespace isoloss::gate::precision_measures_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Policy InTokens(double margin) {
  Policy policy;
  policy.margin_tokens_percent = margin;
  return policy;
}

// L = 2 + 105 / (30 + 7 t) + 0.01 seed falls by 105 * 7 t / (30 + 7 t)^2 per
// unit of ln(t), 0.278 nats at t = 45.4 in the middle of the window, steps 41
// to 50; the fit over steps 26 to 50 and the bend assumed leave some 10 % of
// it. 0.055 % of a loss of 2.328 nats is 0.00128 nats, 0.46 % of the tokens.
TEST(MarginInTokens, DecidesOnExtraTokens) {
  const Judgement judgement = JudgeRuns(HealthyRuns(), InTokens(2));

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  const Check& check = CheckNamed(judgement, "final_window");
  EXPECT_EQ(check.quantity, "extra tokens for the mean paired loss difference");
  EXPECT_NEAR(check.value.value(), 0.46, 0.05);
  EXPECT_EQ(check.limit, 2);
  EXPECT_EQ(check.lower, judgement.precision->tokens->interval.lower);
  EXPECT_EQ(check.upper, judgement.precision->tokens->interval.upper);
  EXPECT_EQ(CheckNamed(judgement, "held_out").limit, 2);

  EXPECT_EQ(JudgeRuns(HealthyRuns(), InTokens(0.5)).outcome,
            Outcome::kInconclusive);
  EXPECT_EQ(JudgeRuns(HealthyRuns(), InTokens(0.1)).outcome, Outcome::kFail);
}

// Where the margin in percent of the loss would pass.
TEST(MarginInTokens, IsInconclusiveWithoutASlope) {
  const Judgement falling =
      JudgeRuns(WithFallingRates(HealthyRuns()), InTokens(50));
  EXPECT_EQ(falling.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(falling, "final_window").evidence,
              HasSubstr("the learning rate falls from step 2 of 50 on"));
  EXPECT_FALSE(CheckNamed(falling, "final_window").value.has_value());
  EXPECT_EQ(CheckNamed(falling, "held_out").outcome, Outcome::kInconclusive);
  EXPECT_EQ(JudgeRuns(WithFallingRates(HealthyRuns())).outcome, Outcome::kPass);

  const Judgement one =
      JudgeRuns(test_support::SyntheticExperiment({0.05}), InTokens(50));
  EXPECT_EQ(one.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(one, "final_window").evidence, HasSubstr("one pair"));
}

TEST(MarginInTokens, OneSidedAcceptsACandidateThatIsBetter) {
  const Runs better =
      test_support::SyntheticExperiment({-0.45, -0.50, -0.55, -0.50});
  Policy policy = InTokens(2);
  EXPECT_EQ(JudgeRuns(better, policy).outcome, Outcome::kFail);
  policy.one_sided = true;
  EXPECT_EQ(JudgeRuns(better, policy).outcome, Outcome::kPass);
}

TEST(PrecisionMeasures, SayWhatTheChecksCouldHaveSeen) {
  const Judgement judgement = JudgeRuns(HealthyRuns());

  const auto& sensitivity = judgement.precision->sensitivity;
  ASSERT_EQ(sensitivity.size(), 2);
  EXPECT_EQ(sensitivity[0].check, "final_window");
  EXPECT_EQ(sensitivity[1].check, "held_out");
  const Sensitivity& window = sensitivity[0];
  EXPECT_EQ(window.pairs, 4);
  // Of 4, 5, 6 and 7 hundredths: the root of 5/3 of them.
  EXPECT_NEAR(window.sd, 0.01 * std::sqrt(5 / 3.0), 1e-12);
  const stats::EquivalenceOptions options{.margin = 0.25};
  EXPECT_EQ(window.margin, 0.25);
  EXPECT_EQ(window.alpha, 0.05);
  // The chi-squared variable of 3 degrees of freedom is below 1.00517 with
  // probability 0.2 (tables have five digits).
  EXPECT_NEAR(window.sd_limit, window.sd * std::sqrt(3 / 1.00517),
              1e-5 * window.sd);
  EXPECT_EQ(window.power_at_zero,
            stats::EquivalencePower(0, window.sd_limit, 4, options));
  EXPECT_EQ(window.detectable,
            stats::DetectableDifference(window.sd_limit, 4, options));

  EXPECT_EQ(
      JudgeRuns(HealthyRuns(), InTokens(2)).precision->sensitivity[0].margin,
      2);
  EXPECT_THAT(JudgeRuns(test_support::SyntheticExperiment({0.05}))
                  .precision->sensitivity,
              IsEmpty());
}

TEST(PrecisionMeasures, AreOfPrecisionOnly) {
  Policy regression;
  regression.question = compare::Question::kRegression;

  EXPECT_FALSE(JudgeRuns(HealthyRuns(), regression).precision.has_value());
  EXPECT_FALSE(JudgeRuns({}).precision.has_value());
  const auto precision = JudgeRuns(HealthyRuns()).precision;
  EXPECT_EQ(precision->along->tenths.size(), 10);
  EXPECT_EQ(precision->trained.tokens, 51200);
}

}  // namespace
}  // namespace isoloss::gate::precision_measures_test
