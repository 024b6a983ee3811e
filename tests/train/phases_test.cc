// Runs that change their recipe between two steps: their bits, how they are
// resumed, and what their experiment may ask for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/recipe_phases.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/logged_learner.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"
#include "train/experiment_text.h"

namespace isoloss::train::phases_test {
namespace {

using isoloss::test_support::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Arm `arm` of KeptExperiment changes to `recipe` after `last` of 8 steps.
std::string Then(const std::string& arm, int64_t last,
                 const std::string& recipe) {
  return fmt::format("arms.{}.then=[{{from = {}, recipe = \"{}\"}}]", arm,
                     static_cast<double>(last) / kSteps, recipe);
}

runlog::RunLog RunOf(const std::string& arm,
                     const std::vector<std::string>& overrides) {
  const TemporaryFolder folder;
  return Execute({.folder = folder.path(),
                  .manner = {.ranks = 4},
                  .arm = arm,
                  .overrides = overrides});
}

/// Histories of delayed scaling, random bits and transforms depend on steps
/// alone.
TEST(Phases, OfOneRecipeHaveTheBitsOfARunWithout) {
  for (const char* recipe :
       {"mxfp8_rceil", "te_fp8_delayed", "mxfp4_rht_sr", "te_nvfp4"}) {
    SCOPED_TRACE(recipe);
    const std::string arm =
        recipe == std::string_view("mxfp8_rceil") ? "mxfp8" : recipe;

    const runlog::RunLog changed = RunOf(arm, {Then(arm, 3, recipe)});

    const runlog::RunLog whole = RunOf(arm, {});
    EXPECT_EQ(runlog::FirstDifference(changed, whole), "");
    EXPECT_EQ(changed.provenance.final_weights_digest,
              whole.provenance.final_weights_digest);
    EXPECT_EQ(runlog::PhasesOf(changed.provenance.graph).size(), 2u);
  }
}

/// One learner trains the first steps. A second one, of the other recipe, goes
/// on from its weights, moments and biases.
TEST(Phases, AreTwoRunsOneAfterTheOther) {
  constexpr int64_t kLast = 3;
  const Experiment experiment = KeptExperiment({});
  const corpus::Corpus corpus = CorpusOf(experiment);
  Executor executor(1);
  const RunHooks none;
  expert_parallel::Mesh mesh(experiment.model.num_experts, executor);
  expert_parallel::Mesh other(experiment.model.num_experts, executor);
  LoggedLearner first(experiment, ArmNamed(experiment, "mxfp8"), 1, corpus,
                      executor, none, {}, mesh);
  LoggedLearner second(experiment, ArmNamed(experiment, "bf16"), 1, corpus,
                       executor, none, {}, other);
  runlog::RunLog by_hand;
  for (int64_t step = 1; step <= kLast; ++step) first.Step(step, by_hand);
  second.GoOnFrom(first.State());
  for (int64_t step = kLast + 1; step <= kSteps; ++step) {
    second.Step(step, by_hand);
  }

  const runlog::RunLog changed = RunOf("mxfp8", {Then("mxfp8", kLast, "bf16")});

  EXPECT_EQ(changed.steps.loss_nats, by_hand.steps.loss_nats);
  EXPECT_EQ(changed.steps.grad_norm, by_hand.steps.grad_norm);
  EXPECT_EQ(changed.steps.quantized_gemms, by_hand.steps.quantized_gemms);
  EXPECT_EQ(changed.provenance.final_weights_digest,
            DigestToHex(second.WeightsDigest()));
  EXPECT_EQ(changed.steps.quantized_gemms[kLast], 0);
  EXPECT_GT(changed.steps.quantized_gemms[kLast - 1], 0);
}

/// Checkpoints are written after steps 3 and 6, and where a run is stopped.
TEST(Phases, AreResumedBeforeAtAndAfterTheSwitchWithEqualBits) {
  const std::vector<std::string> changes = {
      Then("te_fp8_delayed", 4, "mxfp4_rht_sr")};
  const runlog::RunLog whole = RunOf("te_fp8_delayed", changes);
  for (int64_t step = 2; step <= 6; ++step) {
    SCOPED_TRACE(step);
    const TemporaryFolder folder;
    Execution execution = {.folder = folder.path(),
                           .manner = {.ranks = 4},
                           .stop_after = step,
                           .arm = "te_fp8_delayed",
                           .overrides = changes};
    Execute(execution);
    execution.resume = true;
    execution.stop_after = kSteps;

    ExpectSame(Execute(execution), whole, folder.path());
  }
}

/// Each process makes the exchanges of its model anew.
TEST(Phases, HaveTheBitsOfOneProcessOnTwo) {
  const TemporaryFolder folder;
  const std::vector<std::string> changes = {
      Then("te_fp8_delayed", 4, "mxfp4_rht_sr")};

  Execute({.folder = folder.path(),
           .manner = {.workers = 2,
                      .ranks = 4,
                      .transport = "memory",
                      .processes = 2},
           .arm = "te_fp8_delayed",
           .overrides = changes});

  ExpectSame(runlog::ReadRunLog(PathsIn(folder.path()).Log()),
             RunOf("te_fp8_delayed", changes), folder.path());
}

TEST(Phases, OfAnotherPlanAreRefusedToGoOn) {
  const TemporaryFolder folder;
  Execution execution = {.folder = folder.path(),
                         .stop_after = 2,
                         .overrides = {Then("mxfp8", 4, "bf16")}};
  Execute(execution);
  execution.resume = true;
  const auto refusal = [&](const std::vector<std::string>& overrides) {
    execution.overrides = overrides;
    try {
      Execute(execution);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };

  EXPECT_THAT(refusal({Then("mxfp8", 5, "bf16")}),
              HasSubstr("`from step 5: bf16` before, `from step 6: bf16` now"));
  EXPECT_THAT(refusal({}), HasSubstr("recipe: mxfp8_rceil then bf16 before, "
                                     "mxfp8_rceil now"));
}

TEST(Phases, BeginAfterTheNearestStepToTheirShare) {
  // 0.29 * 100 is 28.999999999999996 in double precision.
  EXPECT_EQ(runlog::LastStepOf(0.29, 100), 29);
  EXPECT_EQ(runlog::LastStepOf(0.9, 300), 270);
  EXPECT_EQ(runlog::LastStepOf(0.5, 7), 4);

  const Experiment experiment =
      Parse(std::string(kText) +
            "[arms.late]\nrecipe = \"bf16\"\n[[arms.late.then]]\nfrom = 0.1\n"
            "recipe = \"mxfp8_rceil\"\nsites = \"routed_experts\"\n"
            "[[arms.late.then]]\nfrom = 0.9\nrecipe = \"bf16\"\n");
  const Arm& late = experiment.arms.back();
  std::vector<int64_t> steps;
  for (const ArmPhase& phase : PhasesOf(late, 300)) {
    steps.push_back(phase.first_step);
  }

  EXPECT_THAT(steps, ElementsAre(1, 31, 271));
  EXPECT_EQ(RecipeNames(late), "bf16 then mxfp8_rceil then bf16");
  EXPECT_EQ(Parse(experiment.ResolvedToml()).ResolvedToml(),
            experiment.ResolvedToml());
  const runlog::RecipePlan plan =
      runlog::RecipePlanOf(experiment.ResolvedToml(), "late", 300);
  EXPECT_EQ(plan.name, RecipeNames(late));
  EXPECT_THAT(plan.first_steps, ElementsAre(31, 271));
}

TEST(Phases, AreRefusedWithTheirPlace) {
  const auto error = [](const std::string& tables) {
    return ErrorOfAppended("[arms.x]\nrecipe = \"mxfp8_rceil\"\n" + tables);
  };
  const auto then = [](const char* from, const char* recipe) {
    return fmt::format("[[arms.x.then]]\nfrom = {}\nrecipe = \"{}\"\n", from,
                       recipe);
  };

  // The first table begins in line 16, and its keys follow.
  EXPECT_THAT(error(then("0.9", "bf61")),
              HasSubstr("experiment.toml:18:10: `arms.x.then.recipe` is "
                        "\"bf61\", but must be one of"));
  EXPECT_THAT(error(then("1.0", "bf16")),
              HasSubstr("`arms.x.then.from` is 1.0, but must be"));
  EXPECT_THAT(error("[[arms.x.then]]\nrecipe = \"bf16\"\n"), HasSubstr("from"));
  EXPECT_THAT(error(then("0.9", "bf16") + then("0.9", "fp32")),
              HasSubstr("experiment.toml:20:8: `arms.x.then.from` is 0.9, but "
                        "that of the table before it is 0.9"));
  EXPECT_THAT(error(then("0.0001", "bf16")),
              HasSubstr("recipe mxfp8_rceil ends after step 0 of"));
  EXPECT_THAT(error(then("0.9999", "bf16")),
              HasSubstr("recipe bf16 must have a step, too"));
  EXPECT_THAT(error(then("0.5", "bf16") + "sites = \"routed_experts\"\n"),
              HasSubstr("experiment.toml:18:10: [arms.x.then]"));
  std::string many;
  for (int i = 1; i <= 8; ++i) {
    many += then(fmt::format("0.{}", i).c_str(), "bf16");
  }
  EXPECT_THAT(error(many), HasSubstr("a run has at most 8 recipes"));
  EXPECT_THAT(error("[arms.x.then]\nfrom = 0.5\nrecipe = \"bf16\"\n"),
              HasSubstr("Write [[arms.x.then]]"));
}

}  // namespace
}  // namespace isoloss::train::phases_test
