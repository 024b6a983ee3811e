// Logs that contradict themselves or each other were edited.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/compare/integrity.h"
#include "isoloss/runlog/recipe_phases.h"
#include "support/sample_graph.h"
#include "support/synthetic_runs.h"

namespace isoloss::compare::edited_logs_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What `rule` says of bf16 and mxfp8 after `edit` of the latter.
std::vector<Finding> FindingsOf(
    std::string_view rule, const std::function<void(runlog::RunLog&)>& edit) {
  Run baseline = test_support::SyntheticRun(false, 1, 0);
  Run candidate = test_support::SyntheticRun(true, 1, 0.05);
  for (Run* run : {&baseline, &candidate}) {
    run->log.parameters = test_support::SampleParameters(run->log.steps);
  }
  edit(candidate.log);
  const Pairing pairing =
      PairBySeed("bf16", {&baseline}, "mxfp8", {&candidate});
  for (const IntegrityRule& known : IntegrityRules()) {
    if (known.name == rule) return known.check(pairing, Question::kPrecision);
  }
  ADD_FAILURE() << "no rule " << rule;
  return {};
}

void ExpectOne(std::string_view rule, Severity severity, const char* message,
               const std::function<void(runlog::RunLog&)>& edit) {
  EXPECT_THAT(FindingsOf(rule, edit),
              ElementsAre(AllOf(Field(&Finding::severity, severity),
                                Field(&Finding::message, HasSubstr(message)))))
      << message;
}

TEST(EditedLogs, SoundOnesHaveNoFindings) {
  for (const char* rule : {"configuration", "steps", "recipe_ran"}) {
    EXPECT_THAT(FindingsOf(rule, [](auto&) {}), IsEmpty()) << rule;
  }
}

TEST(EditedLogs, TheTableOfARecipeIsHeldAgainstItsText) {
  const auto asked = [](runlog::RunLog& log) -> runlog::RecipeColumns& {
    log.provenance.resolved_recipe =
        "layers.0.wq              fprop e4m3 x e4m3  dgrad again e4m3 x e4m3 "
        "in fp22  wgrad e4m3 x again e4m3  (included by `wq`)\n"
        "layers.0.moe.router.gate  fprop bf16 x fp32  dgrad bf16 x bf16  "
        "wgrad bf16 x bf16 in fp22  (not included)\n"
        "attention  scores_q e4m3  (all layers)\n";
    auto& recipe = log.provenance.graph.recipe;
    recipe.dgrad_dy[0] = "e4m3 again in fp22";
    recipe.wgrad_dy = {"e4m3 to bf16", " in fp22 to bf16"};
    recipe.wgrad_x[0] = "e4m3 again";
    return recipe;
  };
  EXPECT_THAT(FindingsOf("recipe_ran", [&](auto& log) { asked(log); }),
              IsEmpty());
  ExpectOne("recipe_ran", Severity::kBad,
            "/recipe gives `` and `e4m3` to fprop of layers.0.wq, but recipe "
            "mxfp8_rceil gives `e4m3` and `e4m3`",
            [&](auto& log) { asked(log).fprop_x[0].clear(); });
  ExpectOne("recipe_ran", Severity::kBad, "gives `e4m3` and `e5m2` to dgrad",
            [&](auto& log) {
              auto& recipe = asked(log);
              recipe.dgrad_dy[0] = "e4m3";
              recipe.dgrad_w[0] = "e5m2";
            });
  ExpectOne("recipe_ran", Severity::kBad, "to wgrad of layers.0.wq",
            [&](auto& log) { asked(log).wgrad_x[0] = "e4m3"; });
}

/// The recipe becomes BF16 from step 41 on.
void ChangeRecipe(runlog::RunLog& log) {
  log.provenance.resolved_recipe +=
      runlog::PhaseHeading(41, "bf16") + test_support::SampleRecipeText("bf16");
  runlog::AddPhase({41, test_support::SampleGraph("").recipe},
                   log.provenance.graph);
  std::fill(log.steps.quantized_gemms.begin() + 40,
            log.steps.quantized_gemms.end(), 0);
}

TEST(EditedLogs, ARecipeChangesAtItsStep) {
  EXPECT_THAT(FindingsOf("recipe_ran", ChangeRecipe), IsEmpty());
  ExpectOne("recipe_ran", Severity::kBad,
            "78 quantised GEMMs ran in step 41, but recipe mxfp8_rceil asks "
            "for 0 from step 41 on",
            [](auto& log) {
              ChangeRecipe(log);
              log.steps.quantized_gemms[40] = 78;
            });
  ExpectOne("recipe_ran", Severity::kBad,
            "0 quantised GEMMs ran in step 40, but recipe mxfp8_rceil asks for "
            "78 from step 1 on",
            [](auto& log) {
              ChangeRecipe(log);
              log.steps.quantized_gemms[39] = 0;
            });
  ExpectOne("recipe_ran", Severity::kBad,
            "/recipe_phases has phase 2 from step 42 on, but resolved_recipe "
            "from step 41",
            [](auto& log) {
              ChangeRecipe(log);
              for (int64_t& step : log.provenance.graph.phases.first_step) {
                step = 42;
              }
              log.steps.quantized_gemms[40] = 78;
            });
  ExpectOne("recipe_ran", Severity::kBad, "/recipe gives `` and `e4m3` to",
            [](auto& log) {
              ChangeRecipe(log);
              log.provenance.graph.phases.fprop_w[0] = "e4m3";
              // The site has 26 experts.
              std::fill(log.steps.quantized_gemms.begin() + 40,
                        log.steps.quantized_gemms.end(), 26);
            });
}

TEST(EditedLogs, ParametersOfOneBuildHaveOneOrder) {
  ExpectOne("configuration", Severity::kIncomparable, "its /parameters/names",
            [](auto& log) {
              std::swap(log.parameters.names[0], log.parameters.names[1]);
            });
}

TEST(EditedLogs, EqualWeightsBeginWithNearlyEqualLosses) {
  // 0.05 % is what formats do; a tenth is the limit.
  for (const double factor : {0.5, 1.2, 3.0}) {
    ExpectOne("configuration", Severity::kBad, "held-out loss before step 1",
              [&](auto& log) { log.eval.loss_nats[0] *= factor; });
  }
  const auto perturbed = [](runlog::RunLog& log) {
    log.provenance.perturbation = "one_ulp, draw 1";
    log.provenance.initial_weights_digest = "other";
    log.eval.loss_nats[0] *= 3;
  };
  EXPECT_THAT(FindingsOf("configuration", perturbed), IsEmpty());
}

TEST(EditedLogs, ACompleteRunWasNotAborted) {
  ExpectOne("steps", Severity::kIncomparable, "its last event is `abort`",
            [](auto& log) {
              log.events = {{0, "abort", ""}};
            });
  const auto resumed = [](runlog::RunLog& log) {
    log.events = {{0, "abort", ""}, {1, "resume", ""}, {2, "finish", ""}};
  };
  EXPECT_THAT(FindingsOf("steps", resumed), IsEmpty());
}

TEST(EditedLogs, AResolvedRecipeNamesGemms) {
  for (const char* text : {"", "mxfp8_rceil", "layers.0.wq  fprop e4m3\n"}) {
    ExpectOne("recipe_ran", Severity::kIncomparable, "names no GEMM",
              [text](auto& log) {
                log.schema_version = runlog::kFullTextVersion;
                log.provenance.resolved_recipe = text;
              });
  }
}

}  // namespace
}  // namespace isoloss::compare::edited_logs_test
