#include "isoloss/gate/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "isoloss/gate/ladder.h"
#include "support/synthetic_runs.h"

namespace isoloss::gate {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Runs = std::vector<compare::Run>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Judgement JudgeRuns(const Runs& runs, const Policy& policy = {}) {
  return Judge(runs, "bf16", "mxfp8", policy);
}

const Check& CheckNamed(const Judgement& judgement, const std::string& name) {
  for (const Check& check : judgement.checks) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  static const Check kNone;
  return kNone;
}

Runs HealthyRuns() {
  return testing::SyntheticExperiment({0.05, 0.06, 0.07, 0.04});
}

// Index of the candidate's run with seed 3 in HealthyRuns.
constexpr size_t kCandidate3 = 6;
constexpr size_t kBaseline3 = 2;

// ---- happy paths
// -------------------------------------------------------------

// Differences 0.05, 0.06, 0.07, 0.04 %: mean 0.055, sd sqrt(0.0005 / 3) =
// 0.0129099, t_{0.95,3} = 2.353363 (printed tables: 2.353), half width
// 2.353363 * 0.0129099 / 2 = 0.0151909.
TEST(Judge, PassesWhenTheIntervalLiesWithinTheMargin) {
  const Judgement judgement = JudgeRuns(HealthyRuns());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(ExitCode(judgement.outcome), 0);
  EXPECT_THAT(judgement.checks, SizeIs(8));
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
      JudgeRuns(testing::SyntheticExperiment({0.45, 0.50, 0.55, 0.50}));

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
      JudgeRuns(testing::SyntheticExperiment({-0.05, 0.29}));

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_EQ(ExitCode(judgement.outcome), 4);
  const Check& check = CheckNamed(judgement, "final_window");
  EXPECT_EQ(check.outcome, Outcome::kInconclusive);
  EXPECT_THAT(check.evidence, HasSubstr("[-0.953 %, +1.193 %], 2 seed pairs"));
  EXPECT_EQ(check.next, "23 seed pairs needed for power 0.8");
}

TEST(Judge, SaysWhenNoNumberOfSeedsSuffices) {
  const Judgement judgement =
      JudgeRuns(testing::SyntheticExperiment({0.2, 0.4}));

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "final_window").next,
              HasSubstr("no number of seeds"));
}

TEST(Judge, IsInconclusiveBelowThePolicysNumberOfSeeds) {
  Policy policy;
  policy.min_seeds = 5;

  const Judgement judgement = JudgeRuns(HealthyRuns(), policy);

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "final_window").next,
              HasSubstr("5 seed pairs needed"));
}

TEST(Judge, FailsOnTheHeldOutLossAlone) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    if (run.log.provenance.arm == "mxfp8") run.log.eval.loss_nats.back() *= 1.1;
  }

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(CheckNamed(judgement, "final_window").outcome, Outcome::kPass);
  EXPECT_EQ(CheckNamed(judgement, "held_out").outcome, Outcome::kFail);
}

TEST(Judge, OneSidedPolicyAcceptsABetterCandidate) {
  const Runs runs = testing::SyntheticExperiment({-0.45, -0.50, -0.55, -0.50});
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
  runs.push_back(testing::SyntheticRun(true, 1, 50));
  runs.back().log.provenance.arm = "third";

  EXPECT_EQ(JudgeRuns(runs).outcome, Outcome::kPass);
}

TEST(Judge, AcceptsRunsWithoutEvaluations) {
  Runs runs = HealthyRuns();
  for (auto& run : runs) run.log.eval = {};

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_THAT(judgement.checks, SizeIs(7));
}

// ---- regression
// ----------------------------------------------------------------

Policy Regression() {
  Policy policy;
  policy.question = compare::Question::kRegression;
  return policy;
}

/// Arms of one recipe, made by two versions of the program.
Runs TwoVersions(double percent) {
  Runs runs =
      testing::SyntheticExperiment({percent, percent, percent, percent});
  for (auto& run : runs) {
    auto& p = run.log.provenance;
    const std::string arm = p.arm;
    const bool old = arm == "bf16";
    const int64_t seed = p.seed;
    if (old) {
      run.log.provenance = testing::SyntheticRun(true, seed, 0).log.provenance;
      std::fill(run.log.steps.quantized_gemms.begin(),
                run.log.steps.quantized_gemms.end(), 78);
    }
    p.arm = arm;
    p.commit = old ? "old" : "new";
  }
  return runs;
}

TEST(JudgeRegression, PassesAndSettlesOnEqualBits) {
  const Judgement judgement = JudgeRuns(TwoVersions(0), Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(judgement.checks.back().name, "bit_equal");
}

TEST(JudgeRegression, GoesOnToTheMarginWhenBitsDiffer) {
  EXPECT_EQ(JudgeRuns(TwoVersions(0.01), Regression()).outcome, Outcome::kPass);
  EXPECT_EQ(JudgeRuns(TwoVersions(0.5), Regression()).outcome, Outcome::kFail);
}

TEST(JudgeRegression, RefusesTwoRecipes) {
  EXPECT_EQ(JudgeRuns(HealthyRuns(), Regression()).outcome, Outcome::kInvalid);
}

// ---- fail closed
// ---------------------------------------------------------------

struct BadInput {
  const char* name;
  std::function<void(Runs&)> spoil;
  Outcome outcome;
  const char* check;
  const char* message;
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

class FailClosedTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(FailClosedTest, GivesTheStatedOutcomeAndMessage) {
  Runs runs = HealthyRuns();
  GetParam().spoil(runs);

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, GetParam().outcome);
  EXPECT_NE(ExitCode(judgement.outcome), 0);
  const Check& check = CheckNamed(judgement, GetParam().check);
  EXPECT_EQ(check.outcome, GetParam().outcome);
  EXPECT_THAT(check.quantity + " next: " + check.next,
              HasSubstr(GetParam().message));
}

/// Changes the candidate's run of seed 3.
std::function<void(Runs&)> Spoil(
    std::function<void(runlog::RunLog&)> spoil_log) {
  return [=](Runs& runs) { spoil_log(runs[kCandidate3].log); };
}

/// Changes every run of the candidate.
std::function<void(Runs&)> SpoilArm(
    std::function<void(runlog::RunLog&)> spoil_log) {
  return [=](Runs& runs) {
    for (auto& run : runs) {
      if (run.log.provenance.arm == "mxfp8") spoil_log(run.log);
    }
  };
}

/// Calls `change` on every column of the log.
template <typename Change>
void ChangeColumns(runlog::StepColumns& steps, Change change) {
  change(steps.step);
  change(steps.tokens_seen);
  change(steps.loss_nats);
  change(steps.grad_norm);
  change(steps.lr);
  change(steps.step_seconds);
  change(steps.tokens_per_second);
  change(steps.expert_load_max_over_mean);
  change(steps.dead_experts);
  change(steps.quantized_gemms);
}

void KeepSteps(runlog::RunLog& log, size_t count) {
  ChangeColumns(log.steps, [&](auto& column) { column.resize(count); });
}

const BadInput kNotFinite[] = {
    {"AllNan", SpoilArm([](auto& log) {
       for (double& loss : log.steps.loss_nats) loss = kNan;
     }),
     Outcome::kFail, "finite",
     "mxfp8_seed1.h5: loss_nats is NaN at step 1 (50 of 50 values are such)"},
    {"BothArmsAllNan",
     [](Runs& runs) {
       for (auto& run : runs) {
         for (double& loss : run.log.steps.loss_nats) loss = kNan;
       }
     },
     Outcome::kFail, "finite", "bf16_seed1.h5: loss_nats is NaN at step 1"},
    {"LastStepNan", Spoil([](auto& log) { log.steps.loss_nats.back() = kNan; }),
     Outcome::kFail, "finite", "mxfp8_seed3.h5: loss_nats is NaN at step 50"},
    {"BaselineNan",
     [](Runs& runs) { runs[kBaseline3].log.steps.loss_nats[6] = kNan; },
     Outcome::kFail, "finite", "bf16_seed3.h5: loss_nats is NaN at step 7"},
    {"Infinity", Spoil([](auto& log) { log.steps.loss_nats[4] = kInf; }),
     Outcome::kFail, "finite", "loss_nats is inf at step 5"},
    {"MinusInfinity", Spoil([](auto& log) { log.steps.loss_nats[4] = -kInf; }),
     Outcome::kFail, "finite", "loss_nats is -inf at step 5"},
    {"ZeroLoss", Spoil([](auto& log) { log.steps.loss_nats[4] = 0; }),
     Outcome::kFail, "finite", "loss_nats is 0 at step 5"},
    {"GradNormNan", Spoil([](auto& log) { log.steps.grad_norm[9] = kNan; }),
     Outcome::kFail, "finite", "grad_norm is NaN at step 10"},
    {"HeldOutNan", Spoil([](auto& log) { log.eval.loss_nats[1] = kNan; }),
     Outcome::kFail, "finite", "held-out loss_nats is NaN at step 50"},
    {"SequenceInfinity",
     Spoil([](auto& log) { log.eval.per_sequence_loss_nats[3] = kInf; }),
     Outcome::kFail, "finite", "per_sequence_loss_nats is inf at step 50"},
    {"StoppedAtNan", Spoil([](auto& log) {
       KeepSteps(log, 20);
       log.steps.loss_nats.back() = kNan;
       log.provenance.complete = false;
     }),
     Outcome::kFail, "steps",
     "stopped at step 20 of 50 with a loss that is not finite"},
};

const BadInput kWrongSteps[] = {
    {"Truncated", Spoil([](auto& log) { KeepSteps(log, 49); }),
     Outcome::kInvalid, "steps", "ends after step 49 of 50"},
    {"NotComplete", Spoil([](auto& log) { log.provenance.complete = false; }),
     Outcome::kInvalid, "steps", "is not marked as complete"},
    {"Shuffled", Spoil([](auto& log) {
       std::swap(log.steps.step[10], log.steps.step[20]);
     }),
     Outcome::kInvalid, "steps", "step 21 stands where step 11 belongs"},
    {"Duplicated", Spoil([](auto& log) {
       ChangeColumns(log.steps, [](auto& column) {
         column.insert(column.begin() + 5, column[4]);
       });
     }),
     Outcome::kInvalid, "steps", "step 5 occurs twice"},
    {"Missing", Spoil([](auto& log) {
       ChangeColumns(log.steps,
                     [](auto& column) { column.erase(column.begin() + 5); });
     }),
     Outcome::kInvalid, "steps", "step 6 is missing"},
    {"Extra", Spoil([](auto& log) {
       ChangeColumns(log.steps,
                     [](auto& column) { column.push_back(column.back()); });
       log.steps.step.back() = 51;
     }),
     Outcome::kInvalid, "steps", "51 steps, but steps must be 1 to 50"},
    {"EmptyFile", [](Runs& runs) { runs[kCandidate3].log.steps = {}; },
     Outcome::kInvalid, "steps", "0 steps of 50 planned"},
    {"NothingPlanned", SpoilArm([](auto& log) {
       log.provenance.steps_planned = 0;
       log.steps = {};
     }),
     Outcome::kInvalid, "steps", "0 steps of 0 planned"},
    {"ShortColumn", Spoil([](auto& log) { log.steps.loss_nats.pop_back(); }),
     Outcome::kInvalid, "steps", "differ in length"},
    {"OtherPlan", SpoilArm([](auto& log) {
       KeepSteps(log, 40);
       log.provenance.steps_planned = 40;
     }),
     Outcome::kInvalid, "steps", "steps_planned differs"},
    {"OtherTokens", Spoil([](auto& log) { ++log.steps.tokens_seen[30]; }),
     Outcome::kInvalid, "steps", "tokens_seen differs"},
    {"NoGradNorm", Spoil([](auto& log) { log.steps.grad_norm.clear(); }),
     Outcome::kInvalid, "steps", "the presence of grad_norm differs"},
    {"NoEvaluation", Spoil([](auto& log) { log.eval = {}; }), Outcome::kInvalid,
     "steps", "the set of held-out evaluations differs"},
    {"EarlyEvaluation",
     [](Runs& runs) {
       for (auto& run : runs) run.log.eval.step.back() = 30;
     },
     Outcome::kInconclusive, "held_out", "evaluate within the final window"},
};

const BadInput kWrongSeeds[] = {
    {"NoRuns", [](Runs& runs) { runs.clear(); }, Outcome::kInvalid, "seeds",
     "arm bf16 has no run, arm mxfp8 has no run"},
    {"NoCandidate", [](Runs& runs) { runs.resize(4); }, Outcome::kInvalid,
     "seeds", "arm bf16 has 1, 2, 3, 4, arm mxfp8 has no run"},
    {"SeedMissing", [](Runs& runs) { runs.pop_back(); }, Outcome::kInvalid,
     "seeds", "arm mxfp8 has 1, 2, 3, but each seed"},
    {"SeedTwice", [](Runs& runs) { runs.push_back(runs.back()); },
     Outcome::kInvalid, "seeds", "arm mxfp8 has 1, 2, 3, 4, 4"},
    {"CopiedSeed",
     [](Runs& runs) {
       for (const size_t i : {kBaseline3, kCandidate3}) {
         runs[i].log.steps = runs[i - 1].log.steps;
       }
     },
     Outcome::kInvalid, "seeds",
     "bf16_seed3.h5: every loss has the bits of bf16_seed2.h5"},
    {"OneSeed",
     [](Runs& runs) {
       runs = {runs[0], runs[4]};
     },
     Outcome::kInconclusive, "final_window",
     "at least 2 seed pairs are needed; how many suffice is unknown"},
    {"SwappedArms",
     [](Runs& runs) {
       for (auto& run : runs) run.log.provenance.baseline_arm = "mxfp8";
     },
     Outcome::kInvalid, "seeds", "Swap the two arms"},
};

const BadInput kWrongConfiguration[] = {
    {"OtherExperiment",
     Spoil([](auto& log) { log.provenance.experiment_name = "other"; }),
     Outcome::kInvalid, "configuration", "experiment_name is 'other'"},
    {"OtherConfig",
     Spoil([](auto& log) { log.provenance.config_digest = "c2"; }),
     Outcome::kInvalid, "configuration", "config_digest is 'c2'"},
    {"OtherCorpus",
     SpoilArm([](auto& log) { log.provenance.corpus_digest = "d2"; }),
     Outcome::kInvalid, "configuration", "corpus_digest is 'd2'"},
    {"OtherInitialWeights",
     Spoil([](auto& log) { log.provenance.initial_weights_digest = "w9"; }),
     Outcome::kInvalid, "configuration", "initial_weights_digest is 'w9'"},
    {"OtherCommit",
     SpoilArm([](auto& log) { log.provenance.commit = "0123abc-dirty"; }),
     Outcome::kInvalid, "configuration", "commit is '0123abc-dirty'"},
    {"OtherVersion",
     SpoilArm([](auto& log) { log.provenance.tool_version = "isoloss 0.2.0"; }),
     Outcome::kInvalid, "configuration", "tool_version"},
    {"UnrecordedCorpus",
     [](Runs& runs) {
       for (auto& run : runs) run.log.provenance.corpus_digest.clear();
     },
     Outcome::kInvalid, "configuration", "must be recorded and equal"},
};

const BadInput kWrongRecipe[] = {
    {"NothingQuantized", SpoilArm([](auto& log) {
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "recipe_ran",
     "mxfp8_seed1.h5: 0 quantised GEMMs ran in step 1, but recipe mxfp8_rceil "
     "asks for 78"},
    {"OneGemmShort",
     Spoil([](auto& log) { log.steps.quantized_gemms[49] = 77; }),
     Outcome::kFail, "recipe_ran", "77 quantised GEMMs ran in step 50"},
    {"NothingPlannedToQuantize", SpoilArm([](auto& log) {
       log.provenance.quantized_gemms_per_step = 0;
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "recipe_ran", "plans 0 quantised GEMMs per step"},
    {"BaselineQuantized",
     [](Runs& runs) { runs[0].log.steps.quantized_gemms[3] = 78; },
     Outcome::kFail, "recipe_ran",
     "bf16_seed1.h5: 78 quantised GEMMs ran in step 4, but recipe bf16"},
    {"NoCount", SpoilArm([](auto& log) { log.steps.quantized_gemms.clear(); }),
     Outcome::kInconclusive, "recipe_ran", "whether recipe mxfp8_rceil"},
    {"IdenticalLosses", Spoil([](auto& log) {
       log.steps.loss_nats =
           testing::SyntheticRun(false, 3, 0).log.steps.loss_nats;
     }),
     Outcome::kFail, "declared_change",
     "arms bf16 and mxfp8 are identical: with seed 3"},
    {"SameRecipe", SpoilArm([](auto& log) {
       log.provenance.recipe = "bf16";
       log.provenance.resolved_recipe = "layers.0.wq  fprop bf16";
       log.provenance.quantized_gemms_per_step = 0;
       for (int64_t& count : log.steps.quantized_gemms) count = 0;
     }),
     Outcome::kFail, "declared_change", "both have recipe bf16"},
    {"MixedArm",
     Spoil([](auto& log) { log.provenance.recipe = "mxfp8_floor"; }),
     Outcome::kInvalid, "declared_change", "but an arm has one recipe"},
};

std::string NameOf(const ::testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(NotFinite, FailClosedTest,
                         ::testing::ValuesIn(kNotFinite), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongSteps, FailClosedTest,
                         ::testing::ValuesIn(kWrongSteps), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongSeeds, FailClosedTest,
                         ::testing::ValuesIn(kWrongSeeds), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongConfiguration, FailClosedTest,
                         ::testing::ValuesIn(kWrongConfiguration), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongRecipe, FailClosedTest,
                         ::testing::ValuesIn(kWrongRecipe), NameOf);

TEST(Judge, NeverPassesWhenTheArmsAreGivenInTheWrongOrder) {
  const Judgement judgement = Judge(HealthyRuns(), "mxfp8", "bf16", {});

  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "seeds").quantity,
              HasSubstr("arm bf16 is the experiment's baseline"));
}

TEST(Judge, StopsAtTheFirstLevelThatFails) {
  Runs runs = HealthyRuns();
  runs[kCandidate3].log.steps.loss_nats[0] = kNan;

  const Judgement judgement = JudgeRuns(runs);

  for (const Check& check : judgement.checks) EXPECT_EQ(check.level, "L0");
  EXPECT_FALSE(judgement.final_window.has_value());
}

TEST(Severest, IsInvalidWithoutAnyCheck) {
  EXPECT_EQ(Severest({}), Outcome::kInvalid);
}

TEST(Ladder, ClimbsInOrder) {
  const auto levels = Ladder();

  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front().id, "L0");
  for (size_t i = 1; i < levels.size(); ++i) {
    EXPECT_LT(levels[i - 1].id, levels[i].id);
  }
}

}  // namespace
}  // namespace isoloss::gate
