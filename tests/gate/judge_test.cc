#include "isoloss/gate/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "isoloss/compare/integrity.h"
#include "isoloss/gate/ladder.h"
#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate::judge_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- happy paths -----------------------------------------------------------

// Differences 0.05, 0.06, 0.07, 0.04 %: mean 0.055, sd sqrt(0.0005 / 3) =
// 0.0129099, t_{0.95,3} = 2.353363 (printed tables: 2.353), half width
// 2.353363 * 0.0129099 / 2 = 0.0151909.
TEST(Judge, PassesWhenTheIntervalLiesWithinTheMargin) {
  const Judgement judgement = JudgeRuns(HealthyRuns());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(ExitCode(judgement.outcome), 0);
  // Of L0, the final window, the course of training, the held-out loss, the
  // last steps, rare harm, the learning rate and what was learnt.
  EXPECT_THAT(judgement.checks, SizeIs(compare::IntegrityRules().size() + 7));
  const Check& check = CheckNamed(judgement, "final_window");
  // Losses near 3 are rounded to 2^-52 of themselves: some 1e-13 %.
  EXPECT_NEAR(check.value.value(), 0.055, 1e-12);
  EXPECT_EQ(check.limit, 0.25);
  EXPECT_EQ(check.evidence,
            "90 % interval [+0.040 %, +0.070 %], 4 seed pairs, steps 41 to 50");
  EXPECT_EQ(CheckNamed(judgement, "held_out").outcome, Outcome::kPass);
  EXPECT_THAT(judgement.warnings, IsEmpty());
}

// Mean 0.5, sd sqrt(0.005 / 3) = 0.0408248, half width 0.048038.
TEST(Judge, FailsWhenTheIntervalLiesOutsideTheMargin) {
  const Judgement judgement =
      JudgeRuns(test_support::SyntheticExperiment({0.45, 0.50, 0.55, 0.50}));

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(ExitCode(judgement.outcome), 1);
  const Check& check = CheckNamed(judgement, "final_window");
  EXPECT_EQ(check.outcome, Outcome::kFail);
  EXPECT_THAT(check.evidence, HasSubstr("[+0.452 %, +0.548 %]"));
  EXPECT_THAT(check.next,
              HasSubstr("isoloss compare bf16_seed3.h5 mxfp8_seed3.h5"));
}

// Mean 0.12, sd 0.34 / sqrt(2) = 0.240416, half width 6.313752 * 0.17 =
// 1.073338; for the 23 pairs see RequiredPairs in equivalence_test.cc.
TEST(Judge, IsInconclusiveWhenTheIntervalCrossesTheMargin) {
  const Judgement judgement =
      JudgeRuns(test_support::SyntheticExperiment({-0.05, 0.29}));

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_EQ(ExitCode(judgement.outcome), 4);
  const Check& check = CheckNamed(judgement, "final_window");
  EXPECT_EQ(check.outcome, Outcome::kInconclusive);
  EXPECT_THAT(check.evidence, HasSubstr("[-0.953 %, +1.193 %], 2 seed pairs"));
  EXPECT_EQ(check.next,
            "23 seed pairs needed for power 0.8: isoloss verify EXPERIMENT "
            "--seeds +21");
}

TEST(Judge, SaysWhenNoNumberOfSeedsSuffices) {
  const Judgement judgement =
      JudgeRuns(test_support::SyntheticExperiment({0.2, 0.4}));

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "final_window").next,
              HasSubstr("more seeds do not help, since the mean difference "
                        "itself, +0.3 %, is beyond the margin"));
}

TEST(Judge, IsInconclusiveBelowThePolicysNumberOfSeeds) {
  Policy policy;
  policy.min_seeds = 5;

  const Judgement judgement = JudgeRuns(HealthyRuns(), policy);

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "final_window").next,
              HasSubstr("5 seed pairs needed"));
}

/// By 10 %, in all of its sequences and so in their mean.
void RaiseLastHeldOut(compare::Run& run) {
  auto& eval = run.log.eval;
  eval.loss_nats.back() *= 1.1;
  const auto sequences = static_cast<size_t>(eval.sequences);
  auto& values = eval.per_sequence_loss_nats;
  for (size_t i = values.size() - sequences; i < values.size(); ++i) {
    values[i] *= 1.1;
  }
}

TEST(Judge, FailsOnTheHeldOutLossAlone) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    if (run.log.provenance.arm == "mxfp8") RaiseLastHeldOut(run);
  }

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(CheckNamed(judgement, "final_window").outcome, Outcome::kPass);
  EXPECT_EQ(CheckNamed(judgement, "held_out").outcome, Outcome::kFail);
}

TEST(Judge, OneSidedPolicyAcceptsABetterCandidate) {
  const Runs runs =
      test_support::SyntheticExperiment({-0.45, -0.50, -0.55, -0.50});
  Policy one_sided;
  one_sided.one_sided = true;

  EXPECT_EQ(JudgeRuns(runs).outcome, Outcome::kFail);
  EXPECT_EQ(JudgeRuns(runs, one_sided).outcome, Outcome::kPass);
}

TEST(Judge, DoesNotDependOnTheOrderOfTheLogs) {
  Runs runs = HealthyRuns();
  const Judgement in_order = JudgeRuns(runs);
  std::reverse(runs.begin(), runs.end());

  const Judgement reversed = JudgeRuns(runs);

  EXPECT_EQ(reversed.outcome, Outcome::kPass);
  EXPECT_EQ(CheckNamed(reversed, "final_window").value,
            CheckNamed(in_order, "final_window").value);
}

TEST(Judge, IgnoresOtherArms) {
  Runs runs = HealthyRuns();
  runs.push_back(test_support::SyntheticRun(true, 1, 50));
  runs.back().log.provenance.arm = "third";

  EXPECT_EQ(JudgeRuns(runs).outcome, Outcome::kPass);
}

TEST(Judge, AcceptsRunsWithoutEvaluations) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) run.log.eval = {};

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_THAT(judgement.checks, SizeIs(compare::IntegrityRules().size() + 6));
}

// ---- regression ------------------------------------------------------------

Policy Regression() {
  Policy policy;
  policy.question = compare::Question::kRegression;
  return policy;
}

/// Arms of one recipe, made by two versions of the program.
Runs TwoVersions(double percent) {
  Runs runs =
      test_support::SyntheticExperiment({percent, percent, percent, percent});
  for (auto& run : runs) {
    auto& p = run.log.provenance;
    const std::string arm = p.arm;
    const bool old = arm == "bf16";
    const int64_t seed = p.seed;
    if (old) {
      run.log.provenance =
          test_support::SyntheticRun(true, seed, 0).log.provenance;
      std::fill(run.log.steps.quantized_gemms.begin(),
                run.log.steps.quantized_gemms.end(), 78);
    }
    p.arm = arm;
    p.commit = old ? "old" : "new";
    p.final_weights_digest = fmt::format("f{}", seed);
  }
  return runs;
}

TEST(JudgeRegression, PassesAndSettlesOnEqualBits) {
  const Judgement judgement = JudgeRuns(TwoVersions(0), Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.checks.back().name, "bit_equal");
}

/// Equal training of which the newer version records another statistic.
Runs TwoVersionsWithOtherUpdates() {
  Runs runs = TwoVersions(0);
  for (auto& run : runs) {
    const bool now = run.log.provenance.arm == "mxfp8";
    const size_t steps = run.log.steps.step.size();
    run.log.parameters = {
        .step = run.log.steps.step,
        .count = 1,
        .names = {"w"},
        .grad_norm = run.log.steps.grad_norm,
        .update_ratio = std::vector<double>(steps, now ? 0.2 : 0.1)};
  }
  return runs;
}

TEST(JudgeRegression, FailsIfEqualTrainingWasRecordedOtherwise) {
  const Runs runs = TwoVersionsWithOtherUpdates();

  const Judgement judgement = JudgeRuns(runs, Regression());

  EXPECT_TRUE(judgement.bit_equal);
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(LevelOf(judgement, "L1"), Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "recorded_statistics").quantity,
              HasSubstr("update_ratio of w at step 1"));
}

/// Rounding hides an inner tensor that was added up in another order: its
/// statistics are the oracle's business, not those of what measures.
TEST(JudgeRegression, LeavesStatisticsToTheOracleWhereATensorDiffers) {
  Runs runs = TwoVersionsWithOtherUpdates();
  for (auto& run : runs) {
    const bool now = run.log.provenance.arm == "mxfp8";
    run.log.tensors.step = {1};
    run.log.tensors.count = 1;
    run.log.tensors.names = {"x_output"};
    run.log.tensors.digest = {now ? 7 : 8};
  }

  const Judgement judgement = JudgeRuns(runs, Regression());

  EXPECT_TRUE(judgement.bit_equal);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
}

TEST(JudgeRegression, DoesNotSettleWhenHeldOutLossesDiffer) {
  Runs runs = TwoVersions(0);
  for (auto& run : runs) {
    if (run.log.provenance.arm == "mxfp8") RaiseLastHeldOut(run);
  }

  const Judgement judgement = JudgeRuns(runs, Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(CheckNamed(judgement, "held_out_bits").outcome, Outcome::kFail);
  EXPECT_EQ(judgement.divergences[0].first.value().quantity,
            "held-out loss_nats");
}

TEST(JudgeRegression, DoesNotSettleWhenFinalWeightsDiffer) {
  Runs runs = TwoVersions(0);
  runs[kCandidate3].log.provenance.final_weights_digest = "other";

  const Judgement judgement = JudgeRuns(runs, Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.checks.back().name, "held_out");
}

TEST(JudgeRegression, GoesOnToTheMarginWhenBitsDiffer) {
  EXPECT_EQ(JudgeRuns(TwoVersions(0.01), Regression()).outcome, Outcome::kPass);
  EXPECT_EQ(JudgeRuns(TwoVersions(0.5), Regression()).outcome, Outcome::kFail);
}

TEST(JudgeRegression, RefusesTwoRecipes) {
  EXPECT_EQ(JudgeRuns(HealthyRuns(), Regression()).outcome, Outcome::kInvalid);

  // Of the same names and texts.
  Runs runs = TwoVersions(0);
  for (auto& run : runs) {
    if (run.log.provenance.arm != "mxfp8") continue;
    run.log.provenance.graph = test_support::SampleGraph("e5m2");
  }
  EXPECT_EQ(JudgeRuns(runs, Regression()).outcome, Outcome::kInvalid);
}

TEST(JudgeRegression, RefusesTwoExchangesButNotALogThatNamesNone) {
  const auto outcome = [](const char* old_exchange, const char* new_exchange) {
    Runs runs = TwoVersions(0);
    for (auto& run : runs) {
      const bool old = run.log.provenance.arm == "bf16";
      run.log.provenance.exchange = old ? old_exchange : new_exchange;
    }
    return JudgeRuns(runs, Regression()).outcome;
  };

  EXPECT_EQ(outcome("flat", "node"), Outcome::kInvalid);
  EXPECT_EQ(outcome("", "flat"), Outcome::kPass);
  EXPECT_EQ(outcome("flat", "flat"), Outcome::kPass);
}

TEST(Judge, TakesAnotherExchangeForTheDeclaredChange) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    auto& p = run.log.provenance;
    const bool candidate = p.arm == "mxfp8";
    p.exchange = candidate ? "node" : "flat";
    p.recipe = "bf16";
    p.resolved_recipe = test_support::SampleRecipeText("bf16");
    p.graph = test_support::SampleGraph("");
    p.quantized_gemms_per_step = 0;
    for (int64_t& count : run.log.steps.quantized_gemms) count = 0;
  }

  EXPECT_EQ(JudgeRuns(runs).outcome, Outcome::kPass);
}

TEST(Judge, TakesOtherArithmeticOfTheSameFormatsForTheDeclaredChange) {
  // As bf16 and fp32, neither of which quantises.
  const auto outcome = [](const char* digest) {
    Runs runs = HealthyRuns();
    for (auto& run : runs) {
      auto& p = run.log.provenance;
      p.resolved_recipe = test_support::SampleRecipeText("bf16");
      p.graph = test_support::SampleGraph("");
      p.numerics_digest = p.arm == "mxfp8" ? digest : "n0";
      p.quantized_gemms_per_step = 0;
      for (int64_t& count : run.log.steps.quantized_gemms) count = 0;
    }
    return JudgeRuns(runs).outcome;
  };

  EXPECT_EQ(outcome("n1"), Outcome::kPass);
  EXPECT_EQ(outcome("n0"), Outcome::kFail);
}

// ---- order -----------------------------------------------------------------

TEST(Judge, WarnsWhenRecipeAndExchangeBothDiffer) {
  Runs runs = HealthyRuns();
  for (compare::Run& run : runs) {
    run.log.provenance.exchange = "exchange = \"flat\"";
  }
  const size_t warnings = JudgeRuns(runs).warnings.size();
  for (size_t i = runs.size() / 2; i < runs.size(); ++i) {
    runs[i].log.provenance.exchange = "exchange = \"node\"";
  }

  const Judgement judgement = JudgeRuns(runs);

  ASSERT_EQ(judgement.warnings.size(), warnings + 1);
  EXPECT_THAT(judgement.warnings.back(),
              HasSubstr("differs from bf16 in its exchange, too"));
}

TEST(Judge, WarnsOnceOfABuildThatNobodyCanMakeAgain) {
  for (const char* commit : {"1a2b3c4-dirty", "unknown", ""}) {
    Runs runs = HealthyRuns();
    for (compare::Run& run : runs) run.log.provenance.commit = commit;

    const auto warnings = JudgeRuns(runs).warnings;

    EXPECT_EQ(std::count_if(warnings.begin(), warnings.end(),
                            [](const std::string& warning) {
                              return warning.find("does not pin") !=
                                     std::string::npos;
                            }),
              1)
        << commit;
  }
}

TEST(Judge, WarnsOfAPlantedBug) {
  Runs runs = HealthyRuns();
  runs[kCandidate3].log.events.push_back({0, "mutant", "scale_floor"});

  EXPECT_THAT(JudgeRuns(runs).warnings,
              ::testing::Contains(
                  "mxfp8_seed3.h5: this run has `scale_floor` planted in it"));
}

TEST(Judge, NeverPassesWhenTheArmsAreGivenInTheWrongOrder) {
  const Judgement judgement = JudgeArms(HealthyRuns(), "mxfp8", "bf16");

  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "seeds").quantity,
              HasSubstr("arm bf16 is the experiment's baseline"));
}

TEST(Judge, StopsAtTheFirstLevelThatFails) {
  Runs runs = HealthyRuns();
  runs[kCandidate3].log.steps.loss_nats[0] =
      std::numeric_limits<double>::quiet_NaN();

  const Judgement judgement = JudgeRuns(runs);

  for (const Check& check : judgement.checks) EXPECT_EQ(check.level, "L0");
  EXPECT_FALSE(judgement.final_window.has_value());
}

TEST(Severest, IsInvalidWithoutAnyCheckOrJudgement) {
  EXPECT_EQ(Severest(std::span<const Check>()), Outcome::kInvalid);
  EXPECT_EQ(Severest(std::span<const Judgement>()), Outcome::kInvalid);
}

}  // namespace
}  // namespace isoloss::gate::judge_test
