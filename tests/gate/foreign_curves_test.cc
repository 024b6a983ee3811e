// Curves of other programs' runs that are no values of steps, or no pairs.
#include "isoloss/gate/foreign_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/judge.h"
#include "judged_runs.h"
#include "support/foreign_runs.h"

namespace isoloss::gate::foreign_curves_test {
namespace {

using test_support::ForeignArms;
using test_support::ForeignRunOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Judgement JudgePrecision(const Runs& runs) {
  return JudgeArms(runs, "bf16", "fp8");
}

/// The first run is the approved one.
Judgement JudgeRegression(const Runs& runs) {
  Policy policy;
  policy.question = compare::Question::kRegression;
  return Judge(compare::PairBySeed("bf16", {&runs[0]}, "bf16", {&runs[1]}),
               policy);
}

/// By its statistics alone, as noise may look by chance.
void Accuse(compare::Run& run) { run.log.told.looks_smoothed = true; }

TEST(SmoothedCurves, ThatNothingDeclaresHideNoEquality) {
  Runs pair = {ForeignRunOf("bf16", 1, 0), ForeignRunOf("bf16", 1, 0)};
  Accuse(pair[1]);
  EXPECT_EQ(JudgeRegression(pair).outcome, Outcome::kPass);
}

TEST(SmoothedCurves, HideNoGapThatBeginsWithTheFirstStep) {
  Runs runs = ForeignArms({1, 1.1, 0.9, 1});
  Accuse(runs[2]);
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kFail);
  // One that comes later may be smoothing, and so may equality.
  for (compare::Run& run : runs) {
    if (run.log.provenance.arm != "fp8") continue;
    for (size_t row = 0; row < 20; ++row) run.log.steps.loss_nats[row] /= 1.01;
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInconclusive);
  runs = ForeignArms({0.05, 0.06, 0.07, 0.04});
  Accuse(runs[2]);
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInconclusive);
}

// One smoothed arm lags behind the other wherever the loss falls.
TEST(SmoothedCurves, OfOneArmAloneFailNothing) {
  Runs runs = ForeignArms({0, 0, 0, 0});
  for (compare::Run& run : runs) {
    if (run.log.provenance.arm != "fp8") continue;
    auto& loss = run.log.steps.loss_nats;
    for (size_t row = 1; row < loss.size(); ++row) {
      loss[row] = 0.99 * loss[row - 1] + 0.01 * loss[row];
    }
    Accuse(run);
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kInconclusive);
}

// ---- the first step --------------------------------------------------------

/// Gaps of the seeds in percent of the loss, at the first step and at the end,
/// to which they go with a time constant of 20 steps.
Runs ArmsApart(const std::vector<double>& first, double end) {
  Runs runs = ForeignArms(std::vector<double>(first.size(), 0));
  for (size_t seed = 0; seed < first.size(); ++seed) {
    auto& loss = runs[2 * seed + 1].log.steps.loss_nats;
    for (size_t row = 0; row < loss.size(); ++row) {
      const double share = std::exp(-static_cast<double>(row) / 20);
      loss[row] *= 1 + (end + (first[seed] - end) * share) / 100;
    }
  }
  return runs;
}

TEST(FirstStep, OfRunsThatBeganApartMakesNoPairs) {
  for (const double percent : {0.1, 0.4, 2.0}) {
    const Judgement judgement =
        JudgePrecision(ArmsApart({-percent, percent, -percent}, 0.002));
    EXPECT_EQ(judgement.outcome, Outcome::kInconclusive) << percent;
    const std::string& text = CheckNamed(judgement, "first_step").quantity;
    EXPECT_THAT(text, HasSubstr("other initial weights, data or unit"));
    EXPECT_THAT(text, HasSubstr("nats ("));
    EXPECT_THAT(judgement.warnings, Contains(HasSubstr("at step 1 the two")));
  }
}

TEST(FirstStep, OfOtherSeedsMakesNoPairs) {
  // Seeds 4, 5 and 6 in place of 1, 2 and 3. Their noise is 0.02 of 5.6 nats,
  // and stays.
  Runs runs = ForeignArms({0, 0, 0});
  for (int64_t seed = 1; seed <= 3; ++seed) {
    runs[2 * static_cast<size_t>(seed) - 1].log.steps =
        ForeignRunOf("fp8", seed + 3, 0).log.steps;
  }
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_NE(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(CheckNamed(judgement, "first_step").outcome,
            Outcome::kInconclusive);
}

/// Whether a check of that name stands in the verdict.
bool HasCheck(const Judgement& judgement, std::string_view name) {
  return std::ranges::any_of(judgement.checks, [name](const Check& check) {
    return check.name == name;
  });
}

// A coarse recipe is off from the first step on, in all seeds alike, and not
// less at the end.
TEST(FirstStep, OfACoarseRecipeMakesPairs) {
  const Judgement judgement =
      JudgePrecision(ArmsApart({0.15, 0.16, 0.14}, 0.1));
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_FALSE(HasCheck(judgement, "first_step"));
  EXPECT_THAT(judgement.warnings, Contains(HasSubstr("at step 1 the two")));
  // 10 times what FP8 does is not worth a word.
  const Judgement fine = JudgePrecision(ArmsApart({0.01, -0.01, 0.01}, 0.1));
  EXPECT_THAT(fine.warnings, Not(Contains(HasSubstr("at step 1 the two"))));
}

// Digests of weights and batches say that they are pairs, whatever the gap.
TEST(FirstStep, OfRecordedRunsIsThatOfTheirDigests) {
  Runs runs = ArmsApart({-0.2, 0.2, -0.2}, 0.002);
  for (compare::Run& run : runs) {
    const int64_t seed = run.log.provenance.seed;
    run.log.provenance.initial_weights_digest = std::to_string(seed);
    run.log.steps.batch_digest.assign(run.log.steps.step.size(), seed);
  }
  EXPECT_EQ(JudgePrecision(runs).outcome, Outcome::kPass);
}

/// What `change` of all losses of fp8 is called.
Check CheckOfChanged(const std::function<double(double)>& change) {
  Runs runs = ForeignArms({0.01, 0.02, 0.015});
  for (compare::Run& run : runs) {
    if (run.log.provenance.arm != "fp8") continue;
    std::ranges::transform(run.log.steps.loss_nats,
                           run.log.steps.loss_nats.begin(), change);
  }
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_THAT(judgement.warnings, Not(Contains(HasSubstr("other initial"))));
  return CheckNamed(judgement, "first_step");
}

TEST(FirstStep, TellsAnotherUnit) {
  const auto text = [](double factor, double offset) {
    return CheckOfChanged([&](double loss) { return loss * factor + offset; })
        .quantity;
  };
  EXPECT_THAT(text(1 / std::log(2.0), 0), HasSubstr("1/ln 2, so that"));
  EXPECT_THAT(text(std::log(2.0), 0), HasSubstr(": ln 2, so that"));
  EXPECT_THAT(text(0.125, 0), HasSubstr(": 1/8, as of"));
  EXPECT_THAT(text(4, 0), HasSubstr(": 4, as of"));
  EXPECT_THAT(text(1.3, 0), HasSubstr("is 1.3002 times that of bf16"));
  // 0.015 % more than 65 536, which is no whole number of anything.
  EXPECT_THAT(text(65536, 0), HasSubstr(": 65536, as of a sum"));
  EXPECT_THAT(text(1, 0.5), HasSubstr("larger than that of bf16"));
  EXPECT_THAT(CheckOfChanged([](double loss) { return loss + 1; }).next,
              HasSubstr("same terms"));
}

TEST(FirstStep, TellsPerplexities) {
  const auto text = [](double (*power)(double)) {
    return CheckOfChanged(power).quantity;
  };
  EXPECT_THAT(text([](double x) { return std::exp(x); }),
              HasSubstr("each loss of fp8 is e to the power of that of bf16"));
  EXPECT_THAT(text([](double x) { return std::exp2(x); }),
              HasSubstr("each loss of fp8 is 2 to the power of that of bf16"));
}

TEST(FirstStep, TellsLogsThatCountDifferently) {
  Runs runs = ForeignArms({0.01, 0.02, 0.015});
  for (compare::Run& run : runs) {
    auto& loss = run.log.steps.loss_nats;
    // The last loss of fp8 is new; all others are one row early.
    if (run.log.provenance.arm == "fp8") {
      std::ranges::rotate(loss, loss.begin() + 1);
      loss.back() = loss[loss.size() - 2];
    }
  }
  const Judgement judgement = JudgePrecision(runs);
  EXPECT_NE(judgement.outcome, Outcome::kPass);
  EXPECT_THAT(CheckNamed(judgement, "first_step").quantity,
              HasSubstr("are those that bf16 has one row later"));
}

/// Moves the first value from step 1 to step 10.
Runs LoggedAtEachTenthStep(Runs runs) {
  for (compare::Run& run : runs) {
    for (int64_t& step : run.log.steps.step) step *= 10;
    run.log.provenance.steps_planned *= 10;
  }
  return runs;
}

// There chance has had nine steps, so that good pairs are as far apart as later
// or further. Those of other batches are as far apart as two seeds, throughout.
TEST(FirstStep, OfTheTenthStepMayBeChance) {
  const Judgement good = JudgePrecision(
      LoggedAtEachTenthStep(ArmsApart({0.3, -0.2, 0.1, -0.3}, 0.01)));
  EXPECT_EQ(good.outcome, Outcome::kPass);
  EXPECT_FALSE(HasCheck(good, "first_step"));
  EXPECT_THAT(good.warnings, Contains(HasSubstr("chance in the steps before")));

  Runs runs = ForeignArms({0, 0, 0, 0});
  for (size_t seed = 0; seed < 4; ++seed) {
    runs[2 * seed + 1].log.steps =
        ForeignRunOf("fp8", static_cast<int64_t>(seed) + 5, 0).log.steps;
  }
  EXPECT_EQ(
      CheckNamed(JudgePrecision(LoggedAtEachTenthStep(runs)), "first_step")
          .outcome,
      Outcome::kInconclusive);
}

// ---- other batches later ----------------------------------------------------

/// Four seeds whose fp8 has other batches in rows [first, last), and noise of
/// chance as large as `chance` times that of batches.
Runs ArmsOfOtherBatches(size_t first, size_t last, double chance) {
  Runs runs = ForeignArms({0, 0, 0, 0});
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 0.02 * chance);
  for (size_t seed = 0; seed < 4; ++seed) {
    auto& loss = runs[2 * seed + 1].log.steps.loss_nats;
    const auto other =
        ForeignRunOf("fp8", static_cast<int64_t>(seed) + 5, 0).log.steps;
    for (size_t row = 1; row < loss.size(); ++row) {
      if (row >= first && row < last) loss[row] = other.loss_nats[row];
      loss[row] += noise(random);
    }
  }
  return runs;
}

TEST(OtherBatches, AreFoundWhereverTheyStand) {
  for (const auto& [first, last] :
       {std::pair<size_t, size_t>{5, 100}, {50, 100}, {20, 70}, {65, 100}}) {
    const Judgement judgement =
        JudgePrecision(ArmsOfOtherBatches(first, last, 0.1));
    EXPECT_EQ(judgement.outcome, Outcome::kInconclusive) << first;
    EXPECT_THAT(CheckNamed(judgement, "same_batches").quantity,
                HasSubstr("move up or down together at"));
  }
}

// Where the noise of chance is 0.7 of that of batches, losses of a pair
// correlate by 0.82 and move together at 0.8 of the steps.
TEST(OtherBatches, AreNotChanceThatGrows) {
  for (const double chance : {0.0, 0.05, 0.3, 0.7}) {
    EXPECT_FALSE(HasCheck(JudgePrecision(ArmsOfOtherBatches(0, 0, chance)),
                          "same_batches"))
        << chance;
  }
  // Few digits show few moves.
  Runs coarse = ArmsOfOtherBatches(50, 100, 0.1);
  for (compare::Run& run : coarse) {
    run.log.provenance.origin.loss_half_unit = 0.05;
  }
  EXPECT_FALSE(HasCheck(JudgePrecision(coarse), "same_batches"));
}

// ---- warnings ---------------------------------------------------------------

TEST(CurveWarnings, NameALossBeyondAnyVocabulary) {
  Runs runs = ForeignArms({0, 0});
  for (compare::Run& run : runs) {
    for (double& loss : run.log.steps.loss_nats) loss = std::exp(loss);
  }
  EXPECT_THAT(JudgePrecision(runs).warnings,
              Contains(HasSubstr("a perplexity or a sum over tokens?")));
}

}  // namespace
}  // namespace isoloss::gate::foreign_curves_test
