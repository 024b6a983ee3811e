// Probes of all registered recipes, in all that their logs say of operands.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/step_checks/probe.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::registered_recipes_test {
namespace {

/// Tiles of 128 need longer rows and columns than blocks do, none a multiple.
train::Experiment TrialOf(const precision::Recipe& recipe,
                          const std::vector<std::string>& more) {
  const bool has_tiles = recipe.fprop.accumulation.interval == 128;
  const std::string hidden = has_tiles ? "136" : "40";
  const std::string length = has_tiles ? "133" : "37";
  std::vector<std::string> overrides = {"model.dim=32",
                                        "model.n_heads=1",
                                        "model.kv_lora_rank=16",
                                        "model.moe_hidden_dim=24",
                                        "model.num_experts=4",
                                        "model.qk_nope_head_dim=8",
                                        "model.v_head_dim=8",
                                        "model.dense_hidden_dim=" + hidden,
                                        "data.sequence_length=" + length,
                                        "train.sequences_per_batch=2"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  train::Experiment experiment = Trial(overrides);
  experiment.arms.resize(1);
  experiment.arms[0].name = recipe.name;
  experiment.arms[0].Use(recipe);
  return experiment;
}

void ExpectExplained(const precision::Recipe& recipe,
                     const std::vector<std::string>& overrides = {}) {
  SCOPED_TRACE(recipe.name);
  const train::Experiment experiment = TrialOf(recipe, overrides);
  const corpus::Corpus corpus = CorpusOf(experiment);
  Executor executor(1);

  const runlog::ProbeLog log =
      ProbeArm(experiment, experiment.arms[0], /*seed=*/1, corpus, executor,
               {.steps = 2, .cases = {"plain"}});

  EXPECT_TRUE(log.provenance.complete);
  EXPECT_EQ(log.oracle.step.back(), 2);
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    EXPECT_EQ(log.oracle.other[i], 0)
        << "step " << log.oracle.step[i] << ": "
        << log.tensors[static_cast<size_t>(log.oracle.tensor[i])] << " ["
        << log.oracle.worst_row[i] << ", " << log.oracle.worst_column[i]
        << "] is " << log.oracle.worst_value[i] << ", not "
        << log.oracle.worst_expected[i];
  }
  for (const int64_t other : log.routing.other) EXPECT_EQ(other, 0);
}

TEST(RegisteredRecipes, AreExplainedAndSoAreTheirLogs) {
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    ExpectExplained(*recipe);
  }
}

// Experts' rows are two tensors each, and lists are filled up behind either.
TEST(RegisteredRecipes, AreExplainedWithDispatchUnitsAndPadding) {
  const std::vector<std::string> mesh = {
      "parallel.ranks=2", "parallel.exchange=rank", "parallel.dispatch_units=2",
      "parallel.expert_padding=32"};
  for (const char* name : {"te_fp8_delayed", "te_nvfp4", "te_mxfp8_2d"}) {
    ExpectExplained(precision::RecipeByName(name), mesh);
  }
}

// Sums of a gate's weight gradient are of 32 tokens, and so are its tensors.
TEST(RegisteredRecipes, AreExplainedAtGatesAndATiedHead) {
  const std::vector<std::string> tied = {"model.tied_embeddings=true"};
  for (const char* name : {"te_fp8_delayed", "mxfp4_rht_sr"}) {
    precision::Recipe recipe = precision::RecipeByName(name);
    recipe.include = {"layers.", "lm_head"};
    recipe.exclude = {};
    ExpectExplained(recipe, tied);
  }
}

}  // namespace
}  // namespace isoloss::step_checks::registered_recipes_test
