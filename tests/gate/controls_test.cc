// What null arms and the control do to a verdict: they can keep it from PASS,
// and nothing else.
#include "isoloss/gate/controls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "judged_runs.h"
#include "support/control_arms.h"

namespace isoloss::gate::controls_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<double> kGood = {0.05, 0.06, 0.07, 0.04};
const std::vector<double> kChance = {0.02, -0.02, 0.01, -0.01};
const std::vector<double> kBad = {0.9, 1.0, 1.1, 1.0};

/// The control or null arm of these runs, against the baseline.
ControlArm Judged(const Runs& others, const Policy& policy = {}) {
  const Runs runs = test_support::SyntheticExperiment(kGood);
  return JudgeControl(
      compare::PairBySeed(
          "bf16", compare::RunsOfArm(runs, "bf16"),
          others.front().log.provenance.arm,
          compare::RunsOfArm(others, others.front().log.provenance.arm)),
      policy);
}

/// The verdict on differences of `candidate`, beside these arms.
Judgement Verdict(const Controls& controls,
                  const std::vector<double>& candidate = kGood,
                  const Policy& policy = {}) {
  const Runs runs = test_support::SyntheticExperiment(candidate);
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "mxfp8",
                          compare::RunsOfArm(runs, "mxfp8"));
  return Judge(Evidence{.pairing = &pairing, .controls = &controls}, policy);
}

Controls WithNull(const std::vector<double>& percent) {
  return {.nulls = {Judged(test_support::NullRuns(percent))}};
}

Controls WithControl(const std::vector<double>& percent) {
  return {.controls = {Judged(test_support::ArmRuns("mxfp4", percent))}};
}

bool HasCheck(const Judgement& judgement, const std::string& name) {
  return std::ranges::any_of(
      judgement.checks, [&](const Check& check) { return check.name == name; });
}

// Differences +-0.02 and +-0.01 %: mean 0, sd sqrt(0.001 / 3) = 0.0182574, half
// width 2.353363 * 0.0182574 / 2 = 0.0214832 (t of judge_test.cc).
TEST(Controls, AreMeasuredAsACandidateIs) {
  const ControlArm null = Judged(test_support::NullRuns(kChance));

  EXPECT_EQ(null.arm, "null");
  EXPECT_EQ(null.recipe, "bf16");
  EXPECT_EQ(null.perturbation, "one_ulp, draw 1");
  EXPECT_EQ(null.not_judged, "");
  ASSERT_THAT(null.tests, ElementsAre(Field(&ArmTest::name, "final_window"),
                                      Field(&ArmTest::name, "held_out")));
  for (const ArmTest& test : null.tests) {
    EXPECT_EQ(test.outcome, Outcome::kPass);
    EXPECT_EQ(test.pairs.count, 4);
    EXPECT_EQ(test.margin, 0.25);
    // Losses near 3 are rounded to 2^-52 of themselves: some 1e-13 %.
    EXPECT_NEAR(test.pairs.mean, 0, 1e-12);
    EXPECT_NEAR(test.pairs.sd, 0.0182574, 5e-8);  // half of its last digit
    EXPECT_NEAR(test.lower.value(), -0.0214832, 5e-8);
    EXPECT_NEAR(test.upper.value(), 0.0214832, 5e-8);
  }
}

TEST(Controls, ThatDoWhatTheyShouldLeaveAPass) {
  Controls controls = WithNull(kChance);
  controls.controls = WithControl(kBad).controls;

  const Judgement judgement = Verdict(controls);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(ExitCode(judgement.outcome), 0);
  ASSERT_TRUE(judgement.controls.has_value());
  EXPECT_THAT(judgement.controls->nulls, SizeIs(1));
  // The control's own FAIL fails no job.
  EXPECT_TRUE(judgement.controls->controls.at(0).SeenWorse());
  EXPECT_EQ(judgement.controls->controls.at(0).tests[0].outcome,
            Outcome::kFail);
}

TEST(Controls, TheMildestThatFailedSaysMost) {
  const auto control = [](const char* arm, double percent) {
    return Judged(test_support::ArmRuns(
        arm, {percent - 0.01, percent + 0.01, percent - 0.02, percent + 0.02}));
  };
  Controls controls = {.controls = {control("all", 1.0), control("half", 0.4),
                                    control("quarter", 0.12)}};

  const Judgement judgement = Verdict(controls);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.controls->Telling()->arm, "half");
  // If none is seen, the harshest says most.
  controls.controls = {control("quarter", 0.12), control("half", 0.2)};
  const Judgement blind = Verdict(controls);
  EXPECT_EQ(blind.outcome, Outcome::kInconclusive);
  EXPECT_EQ(blind.controls->Telling()->arm, "half");
}

// A control that went apart and came back certifies nothing of the end.
TEST(Controls, AreSeenAtTheEndAlone) {
  Runs control = test_support::ArmRuns("mxfp4", kChance);
  for (auto& run : control) {
    auto& losses = run.log.steps.loss_nats;
    for (size_t i = 2; i < 12; ++i) losses[i] *= 1.3;
  }
  const ControlArm judged = Judged(control);
  ASSERT_TRUE(judged.Outside());  // by its course
  EXPECT_FALSE(judged.SeenWorse());
  EXPECT_EQ(Verdict({.controls = {judged}}).outcome, Outcome::kInconclusive);
}

TEST(Controls, AreNoneWithoutAnyNamed) {
  const Judgement judgement = JudgeRuns(HealthyRuns());

  ASSERT_TRUE(judgement.controls.has_value());
  EXPECT_THAT(judgement.controls->nulls, IsEmpty());
  EXPECT_FALSE(judgement.controls->Telling() != nullptr);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
}

TEST(Controls, ANullArmOutsideTheMarginMakesAPassInconclusive) {
  for (const double sign : {1.0, -1.0}) {
    const Judgement judgement =
        Verdict(WithNull({sign * 0.9, sign * 1.0, sign * 1.1, sign * 1.0}));

    EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
    EXPECT_EQ(ExitCode(judgement.outcome), 4);
    const Check& check = CheckNamed(judgement, "null_arm");
    EXPECT_EQ(check.level, "L5");
    EXPECT_NEAR(check.value.value(), sign, 1e-12);  // as above
    EXPECT_THAT(check.evidence,
                HasSubstr("identical recipes differ by more than the margin "
                          "here; interval ["));
  }
}

/// Half inside, half outside is what few seeds show: it is said, not judged.
TEST(Controls, ANullArmThatIsUndecidedLeavesAPass) {
  const Judgement judgement = Verdict(WithNull({0.3, -0.3, 0.5, -0.1}));

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.controls->nulls[0].tests[0].outcome,
            Outcome::kInconclusive);
}

TEST(Controls, AControlThatDoesNotFailMakesAPassInconclusive) {
  const std::pair<std::vector<double>, const char*> cases[] = {
      {{0.05, 0.06, 0.07, 0.04},  // PASSes itself
       "its difference is smaller than the margin, so it shows nothing of "
       "larger ones; interval ["},
      {{0.2, 0.5, 0.1, 0.6},  // undecided
       "this experiment could not have seen a difference of that size; "
       "interval ["}};
  for (const auto& [percent, words] : cases) {
    const Judgement judgement = Verdict(WithControl(percent));

    EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
    EXPECT_EQ(ExitCode(judgement.outcome), 4);
    EXPECT_THAT(CheckNamed(judgement, "control").evidence, HasSubstr(words));
  }
}

/// At a look with less of alpha left the interval is wider.
TEST(Controls, AreTestedAtTheLevelOfTheLook) {
  const Runs runs = test_support::SyntheticExperiment(kGood);
  const Runs others = test_support::NullRuns(kChance);
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "null",
                          compare::RunsOfArm(others, "null"));
  const Looks early = {.planned = {4, 8}, .taken = {{4, 0.001}}};

  EXPECT_GT(JudgeControl(pairing, {}, &early).tests.at(0).upper.value(),
            JudgeControl(pairing, {}).tests.at(0).upper.value());
}

TEST(Controls, AControlThatComesOutBetterMakesAPassInconclusive) {
  const Judgement judgement = Verdict(WithControl({-0.9, -1.0, -1.1, -1.0}));

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_TRUE(judgement.controls->controls.at(0).Outside());
  EXPECT_FALSE(judgement.controls->controls.at(0).SeenWorse());
  EXPECT_THAT(CheckNamed(judgement, "control").evidence,
              HasSubstr("what must come out worse came out better"));
}

TEST(Controls, LeaveAFailureAsItIs) {
  Controls controls = WithNull(kBad);
  controls.controls = WithControl(kGood).controls;

  const Judgement judgement = Verdict(controls, {0.45, 0.50, 0.55, 0.50});

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_FALSE(HasCheck(judgement, "null_arm"));
  EXPECT_FALSE(HasCheck(judgement, "control"));
}

TEST(Controls, ThatCannotBeJudgedMakeAPassInconclusiveAndSayWhy) {
  Runs few = test_support::NullRuns({0.01, 0.02, -0.01});
  Runs broken = test_support::ArmRuns("mxfp4", kBad);
  broken[2].log.steps.loss_nats.back() =
      std::numeric_limits<double>::quiet_NaN();
  const Controls controls = {.nulls = {Judged(few)},
                             .controls = {Judged(broken)}};

  const Judgement judgement = Verdict(controls);

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "null_arm").quantity,
              HasSubstr("null was not judged: L0 seeds: arm bf16 has"));
  EXPECT_THAT(CheckNamed(judgement, "control").quantity,
              HasSubstr("mxfp4 was not judged: L0 "));
  EXPECT_FALSE(judgement.controls->controls.at(0).SeenWorse());
}

/// A better null arm is as much of a warning as a worse one, and a list of
/// levels takes nothing away.
TEST(Controls, AreJudgedOnBothSidesWhateverThePolicySays) {
  const Policy one_sided = {.one_sided = true};
  const Policy listed = {.levels = {"L2"}};
  const Runs better = test_support::NullRuns({-0.9, -1.0, -1.1, -1.0});

  EXPECT_TRUE(Judged(better, one_sided).Outside());
  EXPECT_TRUE(Judged(better, listed).Outside());
}

/// A candidate of the same runs is what they are compared with.
TEST(Controls, AreMeasuredInTokensWhereTheMarginIs) {
  const Policy in_tokens = {.margin_tokens_percent = 0.1};
  const ControlArm null = Judged(test_support::NullRuns(kGood), in_tokens);
  const Judgement candidate = Verdict({}, kGood, in_tokens);

  ASSERT_THAT(null.tests, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    const Sensitivity& same = candidate.precision->sensitivity[i];
    EXPECT_EQ(null.tests[i].name, same.check);
    EXPECT_EQ(null.tests[i].pairs.sd, same.sd);
    EXPECT_EQ(null.tests[i].pairs.mean,
              CheckNamed(candidate, same.check).value.value());
    EXPECT_EQ(null.tests[i].margin, 0.1);
  }
  // The same mean difference is 0.055 % of the loss.
  EXPECT_GT(null.tests[0].pairs.mean, 0.1);

  const Judgement verdict = Verdict({.nulls = {null}}, kChance, in_tokens);
  EXPECT_EQ(CheckNamed(verdict, "null_arm").limit, 0.1);
}

TEST(Controls, WithoutASlopeSayThatTheirTokensAreUnknown) {
  const Runs null = WithFallingRates(test_support::NullRuns(kGood));
  const Runs runs = WithFallingRates(test_support::SyntheticExperiment(kGood));
  const ControlArm judged = JudgeControl(
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "null",
                          compare::RunsOfArm(null, "null")),
      {.margin_tokens_percent = 50});

  EXPECT_THAT(judged.tests, IsEmpty());
  EXPECT_THAT(judged.not_judged,
              HasSubstr("the learning rate falls from step"));
}

TEST(Controls, AreNoPartOfARegression) {
  const Controls controls = WithNull(kBad);
  const Policy regression = {.question = compare::Question::kRegression};

  const Judgement judgement = Verdict(controls, kGood, regression);

  EXPECT_FALSE(judgement.controls.has_value());
  EXPECT_FALSE(HasCheck(judgement, "null_arm"));
}

}  // namespace
}  // namespace isoloss::gate::controls_test
