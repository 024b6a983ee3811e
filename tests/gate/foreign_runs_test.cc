// Runs that another program trained: what each level says of them, and what it
// must not say.
#include "isoloss/gate/foreign_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/gate/judge.h"
#include "isoloss/stats/student_t.h"
#include "judged_runs.h"
#include "support/foreign_runs.h"

namespace isoloss::gate::foreign_runs_test {
namespace {

using test_support::ForeignArms;
using test_support::ForeignRunOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Judgement JudgePrecision(const Runs& runs) {
  return JudgeArms(runs, "bf16", "fp8");
}

/// The first run is the approved one.
Judgement JudgeRegression(const Runs& runs,
                          const NullEnsemble* good = nullptr) {
  const std::vector<const compare::Run*> approved = {&runs[0]};
  const std::vector<const compare::Run*> judged = {&runs[1]};
  Policy policy;
  policy.question = compare::Question::kRegression;
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", approved, "bf16", judged);
  return Judge(Evidence{.pairing = &pairing, .benign = good}, policy);
}

/// Good runs of the seeds' own noise, apart by `percents` from the first.
NullEnsemble GoodRuns(const std::vector<double>& percents) {
  NullEnsemble good{.file = "good.h5", .ensemble = {}};
  const compare::Run reference = ForeignRunOf("bf16", 1, 0);
  good.ensemble.provenance = reference.log.provenance;
  good.ensemble.reference_provenance = reference.log.provenance;
  for (const double percent : percents) {
    const compare::Run run = ForeignRunOf("bf16", 1, percent);
    good.ensemble.members.push_back({.perturbation = std::to_string(percent),
                                     .seed = 1,
                                     .steps = run.log.steps,
                                     .reference_steps = reference.log.steps});
  }
  return good;
}

TEST(ForeignPairs, PassByTheEndOfTraining) {
  const Judgement judgement =
      JudgePrecision(ForeignArms({0.05, 0.06, 0.07, 0.04}));
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.origin, "torchtitan");
  EXPECT_NEAR(*CheckNamed(judgement, "final_window").value, 0.055, 1e-9);
  EXPECT_THAT(judgement.warnings, Contains(HasSubstr("is not checked")));
}

// A pass must not speak of what no log tells.
TEST(ForeignPairs, ClaimNothingOfRecipesAndConfigurations) {
  const Judgement judgement =
      JudgePrecision(ForeignArms({0.05, 0.06, 0.07, 0.04}));
  for (const Check& check : judgement.checks) {
    EXPECT_NE(check.name, "recipe_ran");
    EXPECT_THAT(check.quantity, Not(HasSubstr("all but the declared change")));
    EXPECT_THAT(check.quantity, Not(HasSubstr("schedule")));
  }
  EXPECT_FALSE(judgement.bit_equal);
}

TEST(ForeignPairs, FailBeyondTheMargin) {
  EXPECT_EQ(JudgePrecision(ForeignArms({1, 1.1, 0.9, 1})).outcome,
            Outcome::kFail);
}

TEST(ForeignPairs, AloneAreInconclusive) {
  EXPECT_EQ(JudgePrecision(ForeignArms({0.01})).outcome,
            Outcome::kInconclusive);
}

TEST(ForeignPairs, OfEveryTenthStepAreJudgedByTheirRows) {
  const Judgement judgement =
      JudgePrecision(ForeignArms({0.05, 0.06, 0.07, 0.04}, 10));
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  // A fifth of ten rows.
  EXPECT_EQ(judgement.final_window->first_step, 90);
  EXPECT_EQ(judgement.final_window->last_step, 100);
}

TEST(ForeignPairs, ThatAreTheSameAreNoDeclaredChange) {
  const Judgement judgement = JudgePrecision(ForeignArms({0, 0}));
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(CheckNamed(judgement, "declared_change").outcome, Outcome::kFail);
}

TEST(ForeignPairs, OfUnequalStepsAreInvalid) {
  Runs runs = ForeignArms({0.05, 0.05});
  runs[1].log.steps.step.back() += 1;
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
}

TEST(ForeignPairs, ThatEndEarlyAreInvalid) {
  Runs runs = ForeignArms({0.05, 0.05});
  runs[1].log.provenance.complete = false;
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "steps").quantity, HasSubstr("--until"));
}

TEST(ForeignPairs, ThatEndInNanFail) {
  Runs runs = ForeignArms({0.05, 0.05});
  runs[1].log.provenance.complete = false;
  runs[1].log.steps.loss_nats.back() = std::nan("");
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kFail);
}

TEST(ForeignPairs, OfMeansAndSingleValuesAreInvalid) {
  Runs runs = ForeignArms({0.05, 0.05});
  runs[1].log.provenance.origin.loss_values =
      static_cast<int64_t>(runlog::LossValues::kOfInterval);
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
}

TEST(ForeignPairs, WithTwoSchedulesAreInvalid) {
  Runs runs = ForeignArms({0.05, 0.05});
  for (compare::Run& run : runs) {
    run.log.steps.lr.assign(run.log.steps.step.size(), 3e-4);
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kPass);
  runs[1].log.steps.lr[50] = 3.1e-4;
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
  // One digit, 3e-4, is no licence for another rate, and two are for rounding.
  for (compare::Run& run : runs) {
    run.log.provenance.origin.lr_half_unit = 0.5e-4;
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
  runs[1].log.steps.lr[50] = 3.01e-4;
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kPass);
}

TEST(ForeignPairs, WithOneScheduleInTwoPrecisionsPass) {
  Runs runs = ForeignArms({0.05, 0.05});
  for (compare::Run& run : runs) {
    const bool single = run.log.provenance.arm == "fp8";
    for (const int64_t step : run.log.steps.step) {
      const double turn =
          M_PI * static_cast<double>(step) / test_support::kForeignSteps;
      // In FP32 the cosine's end is a difference of two numbers near 1.
      const float rounded = 1.5e-4F * (1 + std::cos(static_cast<float>(turn)));
      run.log.steps.lr.push_back(single ? static_cast<double>(rounded)
                                        : 1.5e-4 * (1 + std::cos(turn)));
    }
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kPass);
  runs[1].log.steps.lr[50] *= 1.00001;
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
}

TEST(ForeignPairs, WithAValueThatIsNoNumberFailWhereverItStood) {
  Runs runs = ForeignArms({0.05, 0.05});
  runs[1].log.events.push_back({0, "nonfinite", "the loss of step 5 is nan"});
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "steps").quantity, HasSubstr("step 5"));
}

TEST(ForeignPairs, OfTheBaselinesOwnRunsAreInvalid) {
  Runs runs = ForeignArms({0.05, 0.05});
  runs[1].log.steps = runs[2].log.steps;  // fp8, seed 1, is bf16, seed 2
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
}

// A hostile file.
TEST(ForeignPairs, WhoseColumnsDoNotFitAreInvalid) {
  Runs runs = ForeignArms({0.05, 0.05});
  for (compare::Run& run : runs) run.log.eval.step = {100};
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInvalid);
}

// One decimal: half a unit of 0.1 nats on either side is 5 % of 2 nats.
TEST(ForeignPairs, OfTooFewDigitsAreInconclusive) {
  Runs runs = ForeignArms({0.05, 0.06, 0.07, 0.04});
  for (compare::Run& run : runs) {
    run.log.provenance.origin.loss_half_unit = 0.05;
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInconclusive);
}

// A mean over smoothed values is one of other steps.
TEST(SmoothedCurves, AreRefusedByTheLevelsThatTheyMislead) {
  Runs runs = ForeignArms({0.05, 0.06, 0.07, 0.04});
  for (compare::Run& run : runs) {
    run.log.provenance.origin.loss_values =
        static_cast<int64_t>(runlog::LossValues::kSmoothed);
  }
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "final_window").quantity,
              HasSubstr("smoothed"));
  Runs pair = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)};
  pair[0].log.provenance.origin = runs[0].log.provenance.origin;
  pair[1].log.provenance.origin = runs[0].log.provenance.origin;
  EXPECT_NE(JudgeRegression(pair).outcome, Outcome::kPass);
}

// Points that were left out do not move the mean of a window.
TEST(ThinnedCurves, AreJudgedByTheEndAndNotByDigits) {
  Runs runs = ForeignArms({0.05, 0.06, 0.07, 0.04});
  for (compare::Run& run : runs) {
    run.log.provenance.origin.loss_thinned = true;
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kPass);
  Runs pair = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)};
  for (compare::Run& run : pair) {
    run.log.provenance.origin.loss_thinned = true;
  }
  const Judgement judgement = JudgeRegression(pair);
  EXPECT_FALSE(judgement.written_equal);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
}

TEST(WrittenDigits, ThatAreEqualPassARegression) {
  const Judgement judgement =
      JudgeRegression({ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)});
  EXPECT_TRUE(judgement.written_equal);
  EXPECT_FALSE(judgement.bit_equal);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
}

TEST(WrittenDigits, AreThoseOfGradientNormsToo) {
  Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)};
  runs[1].log.steps.grad_norm[70] = 7;
  EXPECT_FALSE(JudgeRegression(runs).written_equal);
}

TEST(WrittenDigits, OfUnequalRecordedWeightsSettleNothing) {
  Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)};
  runs[0].log.provenance.final_weights_digest = "a";
  runs[1].log.provenance.final_weights_digest = "b";
  EXPECT_FALSE(JudgeRegression(runs).written_equal);
}

TEST(WrittenDigits, OfAFewStepsSettleNothing) {
  EXPECT_FALSE(JudgeRegression({ForeignRunOf("bf16", 1, 0, 20),
                                ForeignRunOf("bf16", 1, 0, 20)})
                   .written_equal);
}

TEST(WrittenDigits, WidenWhatIsEqual) {
  // 1e-4 % of at most 6 nats: 6e-6.
  Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 1e-4)};
  EXPECT_FALSE(JudgeRegression(runs).written_equal);
  for (compare::Run& run : runs) {
    run.log.provenance.origin.loss_half_unit = 0.5e-5;
  }
  EXPECT_TRUE(JudgeRegression(runs).written_equal);
}

// Half a unit of 0.01 nats on either side is 0.5 % of 2 nats, twice the margin.
TEST(WrittenDigits, ThatAreTooFewSettleNothing) {
  Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)};
  for (compare::Run& run : runs) {
    run.log.provenance.origin.loss_half_unit = 0.005;
  }
  const Judgement judgement = JudgeRegression(runs);
  EXPECT_FALSE(judgement.written_equal);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
}

TEST(GoodRunsOfAnEnsemble, GiveTheIntervalOfTheirSpread) {
  // Good runs at 0, 0.02, -0.02, 0.04, -0.04 %: mean 0, sd sqrt(0.004 / 4).
  const NullEnsemble good = GoodRuns({0.02, -0.02, 0.04, -0.04});
  const Judgement judgement = JudgeRegression(
      {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.03)}, &good);
  const Check& check = CheckNamed(judgement, "final_window");
  const double half = stats::StudentTQuantile(0.95, 4) * std::sqrt(0.001) *
                      std::sqrt(1 + 1.0 / 5);
  // The percentages are of losses that FP64 rounds: 1e-13 of them.
  EXPECT_NEAR(*check.value, 0.03, 1e-10);
  EXPECT_NEAR(*check.upper - *check.value, half, 1e-10);
  EXPECT_EQ(check.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
}

// Pairs have what precision asks for, with and without good runs beside them:
// a mean of 0.055 % and a spread of 0.0129 % leave 0.068 % open at the level
// 0.05 / (11/12)^4, which is 2/3 of the margin of 0.25 % at most.
TEST(GoodRunsOfAnEnsemble, TakeNoCheckFromPairsOfPrecision) {
  const Runs runs = ForeignArms({0.05, 0.06, 0.07, 0.04});
  const NullEnsemble good = GoodRuns({0.02, -0.02, 0.04, -0.04});
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "fp8",
                          compare::RunsOfArm(runs, "fp8"));
  for (const NullEnsemble* beside :
       {static_cast<const NullEnsemble*>(nullptr), &good}) {
    const Judgement judgement =
        Judge(Evidence{.pairing = &pairing, .benign = beside}, {});
    EXPECT_EQ(judgement.outcome, Outcome::kPass);
    EXPECT_EQ(CheckNamed(judgement, "final_window").pairs->count, 4);
    EXPECT_EQ(CheckNamed(judgement, "last_steps").outcome, Outcome::kPass);
    const Check& rare = CheckNamed(judgement, "rare_harm");
    EXPECT_EQ(rare.outcome, Outcome::kPass);
    EXPECT_NEAR(*rare.value, 0.068, 5e-4);
  }
  EXPECT_EQ(CheckNamed(JudgePrecision(ForeignArms({0.15, 0.19, 0.17, 0.17})),
                       "rare_harm")
                .outcome,
            Outcome::kInconclusive);
}

TEST(GoodRunsOfAnEnsemble, RefuseARunBeyondTheMargin) {
  const NullEnsemble good = GoodRuns({0.02, -0.02, 0.04, -0.04});
  EXPECT_EQ(
      JudgeRegression(
          {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.6)}, &good)
          .outcome,
      Outcome::kFail);
}

// The spread that chance has makes the interval wider than the margin.
TEST(GoodRunsOfAnEnsemble, ThatDifferByMoreThanTheMarginSettleNothing) {
  const NullEnsemble good = GoodRuns({0.3, -0.3, 0.2, -0.2});
  EXPECT_EQ(
      JudgeRegression(
          {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.01)}, &good)
          .outcome,
      Outcome::kInconclusive);
}

TEST(GoodRunsOfAnEnsemble, MustCoverTheFinalWindow) {
  NullEnsemble good = GoodRuns({0.02, -0.02, 0.04, -0.04});
  auto& steps = good.ensemble.members[2].steps;
  steps.step.pop_back();
  steps.loss_nats.pop_back();
  steps.grad_norm.pop_back();
  const Judgement judgement = JudgeRegression(
      {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.01)}, &good);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "final_window").quantity,
              HasSubstr("lacks steps"));
}

// A copy makes the spread smaller, and no run is judged by itself.
TEST(GoodRunsOfAnEnsemble, AreRunsOfTheirOwn) {
  const Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.03)};
  const NullEnsemble copies = GoodRuns({0.02, -0.02, 0.02});
  EXPECT_EQ(JudgeRegression(runs, &copies).outcome, Outcome::kInvalid);
  const NullEnsemble itself = GoodRuns({0.02, -0.02, 0.03});
  EXPECT_EQ(JudgeRegression(runs, &itself).outcome, Outcome::kInvalid);
}

// Half a unit of 0.01 nats in either log is 0.5 % of 2 nats.
TEST(GoodRunsOfAnEnsemble, SettleNothingWithTooFewDigits) {
  NullEnsemble good = GoodRuns({0.02, -0.02, 0.04, -0.04});
  Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.01)};
  for (compare::Run& run : runs) {
    run.log.provenance.origin.loss_half_unit = 0.005;
  }
  const Judgement judgement = JudgeRegression(runs, &good);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_GT(*CheckNamed(judgement, "final_window").upper, 0.5);
}

// Losses in percent are no tokens.
TEST(GoodRunsOfAnEnsemble, KnowNoMarginInTokens) {
  const NullEnsemble good = GoodRuns({0.02, -0.02, 0.04, -0.04});
  const Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 3)};
  Policy policy;
  policy.question = compare::Question::kRegression;
  policy.margin_tokens_percent = 5;
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", {&runs[0]}, "bf16", {&runs[1]});
  EXPECT_NE(
      Judge(Evidence{.pairing = &pairing, .benign = &good}, policy).outcome,
      Outcome::kPass);
}

TEST(GoodRunsOfAnEnsemble, AreThreeAtLeast) {
  const NullEnsemble good = GoodRuns({0.02});
  EXPECT_EQ(
      JudgeRegression(
          {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.01)}, &good)
          .outcome,
      Outcome::kInconclusive);
}

// With so many, L4 judges the first steps as well.
TEST(GoodRunsOfAnEnsemble, JudgeTheFirstSteps) {
  std::vector<double> percents;
  for (int i = 0; i < 40; ++i) percents.push_back(0.0005 + 0.001 * (i - 20));
  const NullEnsemble good = GoodRuns(percents);
  Runs runs = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0.003)};
  EXPECT_EQ(CheckNamed(JudgeRegression(runs, &good), "early_window").outcome,
            Outcome::kPass);
  // 1 % in one early step, where good runs are 0.02 % apart.
  runs[1].log.steps.loss_nats[4] *= 1.01;
  const Judgement judgement = JudgeRegression(runs, &good);
  EXPECT_EQ(CheckNamed(judgement, "early_window").outcome, Outcome::kFail);
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
}

TEST(PeerOpinions, StandBesideAndDecideNothing) {
  const Judgement judgement =
      JudgePrecision(ForeignArms({0.05, 0.06, 0.07, 0.04}));
  EXPECT_THAT(judgement.peers,
              Contains(AllOf(Field(&PeerOpinion::name, "megatron_exact"),
                             Field(&PeerOpinion::accepted, 0),
                             Field(&PeerOpinion::judged, 4))));
  EXPECT_THAT(judgement.peers,
              Contains(AllOf(Field(&PeerOpinion::name, "megatron_approximate"),
                             Field(&PeerOpinion::accepted, 4))));
  EXPECT_THAT(judgement.peers,
              Contains(Field(&PeerOpinion::name, "mlperf_rcp")));
  EXPECT_THAT(JudgeRuns(HealthyRuns()).peers, IsEmpty());
}

TEST(ForeignWarnings, SayWhatHoldsOfSeveralRunsOnce) {
  Runs runs = ForeignArms({0.05, 0.06});
  for (compare::Run& run : runs) {
    run.log.events.push_back({0, "import", "Steps are missing."});
  }
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_THAT(judgement.warnings,
              Contains(AllOf(HasSubstr("and 3 more"),
                             HasSubstr("Steps are missing."))));
}

}  // namespace
}  // namespace isoloss::gate::foreign_runs_test
