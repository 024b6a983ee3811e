// Which learning rates and which models a PASS on precision may rest on.
#include "isoloss/gate/tuning.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/runlog/tuning.h"
#include "judged_runs.h"
#include "support/foreign_runs.h"

namespace isoloss::gate::tuning_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

/// Healthy runs whose experiment says `text` after "lr = 0.001".
Runs WithText(const std::string& text) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    run.log.provenance.experiment_text = "[train]\nlr = 0.001\n" + text;
  }
  return runs;
}

/// Healthy runs, and a sweep of other rates that fits them.
Runs WithRates(const std::string& rates, const std::string& held_out) {
  return WithText(
      fmt::format("[tuning]\nrates = {}\nheld_out = {}\nseeds = [7, 8]\n"
                  "configuration = \"{}\"\n",
                  rates, held_out,
                  runlog::TuningDigest("[train]\nlr = 0.001\n", "d1", "bf16")));
}

/// The check of runs that nothing but their rate keeps from PASS.
Check OnlyDoubt(const Runs& runs, const std::string& name = "tuning") {
  const Judgement judgement = JudgeRuns(runs);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  for (const Check& check : judgement.checks) {
    EXPECT_EQ(check.outcome == Outcome::kPass, check.name != name)
        << check.name;
  }
  return CheckNamed(judgement, name);
}

TEST(Tuning, PassesNearTheBestRate) {
  const Judgement judgement = JudgeRuns(HealthyRuns());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  const Check& check = CheckNamed(judgement, "tuning");
  EXPECT_EQ(check.level, "L5");
  EXPECT_EQ(check.quantity,
            "learning rate 0.001 is within a factor 1.5 of the best one tried, "
            "0.001");
  // By its three losses, 2.6, 2.5 and 2.7 at log2 -1, 0 and 1 (in units of the
  // rate), the parabola is lowest at -1/6: 0.001 * 2^(-1/6) = 0.000891.
  EXPECT_THAT(check.evidence, HasSubstr("from 0.0005 to 0.002, 2 seeds each, "
                                        "lies near 0.000891"));
  EXPECT_EQ(judgement.rate_note, "");
}

TEST(Tuning, ReachesAFactorOfOneAndAHalfToEitherSide) {
  for (const char* inside :
       {"[0.0004, 0.00067, 0.0013]", "[0.001, 0.0015, 0.003]"}) {
    EXPECT_EQ(JudgeRuns(WithRates(inside, "[2.6, 2.5, 2.7]")).outcome,
              Outcome::kPass)
        << inside;
  }
  for (const char* outside :
       {"[0.0004, 0.00066, 0.002]", "[0.0004, 0.00151, 0.002]"}) {
    OnlyDoubt(WithRates(outside, "[2.6, 2.5, 2.7]"));
  }
}

TEST(Tuning, SaysHowFarTheRateIs) {
  const Check check = OnlyDoubt(
      WithRates("[0.001, 0.002, 0.004, 0.008]", "[2.5, 2.4, 2.345, 2.4]"));

  // 2.345 is 6.2 % below 2.5.
  EXPECT_THAT(check.quantity, HasSubstr("0.004: rate x 4 is 6.2 % better"));
  // The neighbours of the lowest loss have equal losses, so it is the lowest.
  EXPECT_EQ(check.next, "train with train.lr = 0.004");
}

TEST(Tuning, KnowsNoGainOutsideOfTheSweep) {
  EXPECT_THAT(OnlyDoubt(WithRates("[0.01, 0.02, 0.04]", "[3, 2, 3]")).quantity,
              HasSubstr("rate x 20 is the best, and the sweep has no loss at"));
}

TEST(Tuning, NeedsASweep) {
  EXPECT_THAT(OnlyDoubt(WithText("")).quantity,
              HasSubstr("no sweep of learning rates is known"));
  EXPECT_THAT(OnlyDoubt(WithText("[tuning]\nrates = [0.001, 0.002]\n"
                                 "held_out = [2.5]\n"))
                  .quantity,
              HasSubstr("no sweep of learning rates is known"));
}

TEST(Tuning, NeedsASweepOfThisConfigurationAndText) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    run.log.provenance.experiment_text += "[model]\ndim = 64\n";
  }
  EXPECT_THAT(OnlyDoubt(runs).quantity, HasSubstr("was of another model"));

  runs = HealthyRuns();
  for (auto& run : runs) run.log.provenance.corpus_digest = "d2";
  EXPECT_THAT(OnlyDoubt(runs).quantity, HasSubstr("batch, text or recipe"));
}

TEST(Tuning, NeedsASweepOfTheBaselinesRecipe) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    run.log.provenance.experiment_text += "[arms.bf16]\nrecipe = \"bf16\"\n";
  }
  EXPECT_EQ(JudgeRuns(runs).outcome, Outcome::kPass);
  for (auto& run : runs) {
    run.log.provenance.experiment_text += "recipe = \"mxfp4_floor\"\n";
  }
  EXPECT_THAT(OnlyDoubt(runs).quantity, HasSubstr("batch, text or recipe"));
}

TEST(Tuning, NeedsRatesThatLieApart) {
  EXPECT_THAT(
      OnlyDoubt(WithRates("[0.00099, 0.001, 0.00101]", "[2.6, 2.5, 2.7]"))
          .quantity,
      HasSubstr("the sweep reaches from 0.00099 to 0.00101, but it must reach "
                "1.4 times below and beyond"));
}

TEST(Tuning, IgnoresKeysThatMoveNoWeight) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    run.log.provenance.experiment_text +=
        "[log]\neval_every = 7\n[gate]\nmargin_percent = 0.1\n";
  }

  EXPECT_EQ(JudgeRuns(runs).outcome, Outcome::kPass);
}

TEST(Tuning, NeedsRatesOnBothSidesOfTheBest) {
  EXPECT_THAT(OnlyDoubt(WithRates("[0.001, 0.002]", "[2.5, 2.6]")).quantity,
              HasSubstr("is the outermost, so a better one may lie beyond"));
  // A rate that diverged is a side, too.
  EXPECT_EQ(
      JudgeRuns(WithRates("[0.0005, 0.001, 0.002]", "[2.6, 2.5, inf]")).outcome,
      Outcome::kPass);
  EXPECT_THAT(OnlyDoubt(WithRates("[0.0005, 0.001, 0.002]", "[inf, inf, inf]"))
                  .quantity,
              HasSubstr("diverged at every rate tried"));
}

TEST(Tuning, NeedsNearNeighboursOfTheBestAndTwoSeeds) {
  for (const char* rates : {"[1e-09, 0.001, 0.002]", "[0.0005, 0.001, 1]"}) {
    EXPECT_THAT(OnlyDoubt(WithRates(rates, "[9, 2.5, 2.6]")).quantity,
                HasSubstr("must lie within a factor 2.1"))
        << rates;
  }
  // Below the best rate training is slower, but nothing diverges.
  EXPECT_THAT(OnlyDoubt(WithRates("[0.0005, 0.001, 0.002]", "[inf, 2.5, 2.6]"))
                  .quantity,
              HasSubstr("the lower must train"));

  Runs runs = WithRates("[0.0005, 0.001, 0.002]", "[2.6, 2.5, 2.7]");
  for (auto& run : runs) {
    std::string& text = run.log.provenance.experiment_text;
    text.replace(text.find("[7, 8]"), 6, "[7]");
  }
  EXPECT_THAT(OnlyDoubt(runs).quantity, HasSubstr("has 1 seed of each rate"));
}

TEST(Tuning, ReadsNoSweepWhoseRatesDoNotAscend) {
  for (const char* rates :
       {"[0.001, 0.0005, 0.002]", "[-0.0005, 0.001, 0.002]"}) {
    EXPECT_THAT(OnlyDoubt(WithRates(rates, "[2.6, 2.5, 2.7]")).quantity,
                HasSubstr("no sweep of learning rates is known"))
        << rates;
  }
}

TEST(Tuning, TakesTheSweepThatTheExperimentHasNow) {
  const Runs runs = WithText("");
  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "mxfp8",
                          compare::RunsOfArm(runs, "mxfp8"));
  const runlog::RateSweep sweep{.rates = {0.0005, 0.001, 0.002},
                                .held_out = {2.6, 2.5, 2.7},
                                .seeds = 2,
                                .configuration = runlog::TuningDigest(
                                    "[train]\nlr = 0.001\n", "d1", "bf16")};

  EXPECT_EQ(Judge({.pairing = &pairing, .sweep = &sweep}, {}).outcome,
            Outcome::kPass);
}

TEST(Tuning, LeavesFailAsItIs) {
  Runs runs = test_support::SyntheticExperiment({1, 1.1, 1.2, 1});
  for (auto& run : runs) run.log.provenance.experiment_text.clear();

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  for (const Check& check : judgement.checks) EXPECT_NE(check.name, "tuning");
}

TEST(Tuning, IsNoQuestionOfRegression) {
  Policy policy;
  policy.question = compare::Question::kRegression;

  const Judgement judgement = JudgeRuns(WithText(""), policy);

  for (const Check& check : judgement.checks) EXPECT_NE(check.name, "tuning");
  EXPECT_EQ(judgement.rate_note, "");
}

TEST(Tuning, IsReportedOnlyWhereThePolicyAsksForNoMore) {
  Policy policy;
  policy.require_tuning = false;

  const Judgement judgement = JudgeRuns(WithText(""), policy);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.rate_note, "Its learning rate was not judged.");

  Runs unlearnt = WithText("");
  for (auto& run : unlearnt) run.log.provenance.bigram_entropy_nats = 0.1;
  EXPECT_EQ(JudgeRuns(unlearnt, policy).rate_note,
            "Its learning rate was not judged. It is not shown to have learnt "
            "beyond bigrams.");
  EXPECT_THAT(judgement.warnings,
              Contains(HasSubstr("no sweep of learning rates is known")));
}

TEST(Tuning, IsUnknownOfOtherProgramsRuns) {
  const Judgement judgement =
      JudgeArms(test_support::ForeignArms({0.01, 0.02, 0.03}), "bf16", "fp8");

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.rate_note,
            "Nobody knows whether its learning rate is tuned.");
}

// Final losses are 2.33 nats.
Runs WithBigrams(double nats) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) run.log.provenance.bigram_entropy_nats = nats;
  return runs;
}

TEST(Learnt, NeedsALossBelowTheBigramEntropy) {
  // 2.3273 and 2.3 nats are 3.358 and 3.318 bits.
  EXPECT_THAT(OnlyDoubt(WithBigrams(2.3), "learnt").quantity,
              HasSubstr("bf16 ends at 3.358 bits per token, not below the "
                        "3.318 of the corpus' bigrams"));

  const Judgement judgement = JudgeRuns(WithBigrams(2.4));
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(CheckNamed(judgement, "learnt").outcome, Outcome::kPass);
}

// Earlier logs have 0, and a large vocabulary has NaN.
TEST(Learnt, IsNotShownWhereTheEntropyIsUnknown) {
  for (const double unknown : {0.0, std::nan("")}) {
    const Check check = OnlyDoubt(WithBigrams(unknown), "learnt");
    EXPECT_THAT(check.quantity,
                HasSubstr("nobody knows whether bf16 has learnt more"));
    EXPECT_THAT(check.next, HasSubstr("require_tuning = false"));
  }
}

/// Runs whose source has no more to learn than bigrams.
Runs WithFloor(double nats, double unigrams = 3.2) {
  Runs runs = WithBigrams(nats);
  for (auto& run : runs) {
    run.log.provenance.entropy_floor_nats = nats;
    run.log.provenance.unigram_entropy_nats = unigrams;
  }
  return runs;
}

// The final loss is 2.3273 nats, and a tenth of the way from 3.2 is left above
// a floor of (2.3273 - 0.32) / 0.9 = 2.2303 nats.
TEST(Learnt, NeedsNineTenthsOfTheWayToAFloor) {
  const Judgement near = JudgeRuns(WithFloor(2.231));
  EXPECT_EQ(near.outcome, Outcome::kPass);
  // 2.231 + 0.1 * 0.969 = 2.3279 nats are 3.358 bits, as is the loss.
  EXPECT_EQ(CheckNamed(near, "learnt").quantity,
            "bf16 ends at 3.358 bits per token, below 3.358, nine tenths of "
            "the way from the source's unigrams, 4.617, to its floor, 3.219");

  EXPECT_THAT(OnlyDoubt(WithFloor(2.229), "learnt").quantity,
              HasSubstr("not below 3.356, nine tenths of the way"));
  // Bigrams above the floor are passed long before.
  Runs order2 = WithFloor(1);
  for (auto& run : order2) run.log.provenance.bigram_entropy_nats = 2.6;
  OnlyDoubt(order2, "learnt");
}

TEST(Learnt, IsNotShownWhereNothingCanBeLearnt) {
  EXPECT_THAT(OnlyDoubt(WithFloor(3.2, 3.2), "learnt").quantity,
              HasSubstr("nobody knows"));
  EXPECT_THAT(OnlyDoubt(WithFloor(2.231, std::nan("")), "learnt").quantity,
              HasSubstr("nobody knows"));
}

TEST(Learnt, IsAWarningWhereThePolicyAsksForNoMore) {
  Policy policy;
  policy.require_tuning = false;

  const Judgement judgement = JudgeRuns(WithBigrams(2.3), policy);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_THAT(judgement.warnings, Contains(HasSubstr("not below the 3.318")));
  EXPECT_THAT(JudgeRuns(WithBigrams(2.4), policy).warnings, IsEmpty());
}

}  // namespace
}  // namespace isoloss::gate::tuning_test
