#include "isoloss/train/cost.h"

#include <gtest/gtest.h>

#include "experiment_text.h"
#include "isoloss/compare/training_scale.h"
#include "isoloss/model/parameters.h"
#include "isoloss/train/run_description.h"

namespace isoloss::train::cost_test {
namespace {

TEST(Cost, CountsTheProductsOfATokenByHand) {
  const Experiment experiment =
      With({"model.vocab_size=256", "model.dim=10", "model.n_layers=3",
            "model.n_dense_layers=1", "model.n_heads=2", "model.q_lora_rank=0",
            "model.kv_lora_rank=7", "model.qk_nope_head_dim=5",
            "model.qk_rope_head_dim=4", "model.v_head_dim=3",
            "model.dense_hidden_dim=11", "model.moe_hidden_dim=13",
            "model.num_experts=6", "model.num_shared_experts=2",
            "model.top_k=3", "data.sequence_length=20"});
  // Weights that a token meets in a layer's attention: wq 10 x 18, wkv_a
  // 10 x 11, its norm 7, wkv_b 7 x 16, wo 6 x 10; in the dense layer
  // 3 x 10 x 11; in each of 2 MoE layers a gate of 6 x 10 and 5 experts of
  // 3 x 10 x 13; the head 256 x 10.
  constexpr double kAttention = 180 + 110 + 7 + 112 + 60;
  constexpr double kWeights = 3 * kAttention + 330 + 2 * (60 + 5 * 390) + 2560;
  // Scores and values of 10 tokens before it on average: 3 layers of 2 heads
  // of 9 + 3.
  constexpr double kScores = 3 * 2 * 12 * 10;

  EXPECT_DOUBLE_EQ(FlopsPerToken(experiment), 6 * (kWeights + kScores));
}

// What judges read off a log's table of tensors is what the model's sizes say,
// but for the gains of the norms of compressed queries, keys and values, which
// FlopsPerToken counts with attention's weights.
TEST(Cost, AJudgeCountsTheSameByTheLogAlone) {
  for (const char* more : {"train.steps=10", "model.tied_embeddings=true",
                           "model.q_lora_rank=12", "model.n_dense_layers=0"}) {
    const Experiment experiment = With({"model.preset=\"dsv3-nano\"", more});
    const model::ModelConfig& model = experiment.model;
    runlog::RunLog log;
    log.provenance.experiment_text = experiment.TomlWithoutSeeds();
    log.provenance.graph = DescribeModel(experiment, experiment.arms[0]);
    log.provenance.steps_planned = 10;
    log.provenance.tokens_per_step = 7;
    const compare::TrainingScale scale = compare::ScaleOf(log);
    const auto gains = static_cast<double>(
        model.n_layers * (model.kv_lora_rank + model.q_lora_rank));

    ASSERT_TRUE(scale.flops.has_value());
    EXPECT_EQ(scale.tokens, 70);
    EXPECT_DOUBLE_EQ(*scale.flops, 70 * (FlopsPerToken(experiment) - 6 * gains))
        << more;
    // Less the three matrices of each expert that is not chosen.
    const auto idle = static_cast<double>(model.n_moe_layers() *
                                          (model.num_experts - model.top_k) *
                                          3 * model.dim * model.moe_hidden_dim);
    EXPECT_DOUBLE_EQ(
        *scale.active_parameters,
        static_cast<double>(model::ParameterSet(model).value_count()) - idle);
  }
}

TEST(Cost, TimeIsThatOfAllTokensOnAllThreads) {
  const Experiment experiment = With(
      {"train.steps=100", "train.sequences_per_batch=4",
       "data.sequence_length=8", "log.eval_every=50", "log.eval_sequences=3",
       "train.seeds=[1, 2]", "parallel.workers=2", "arms.zero.recipe=bf16"});
  const std::vector<train::Run> runs = PlanRuns(experiment);
  ASSERT_EQ(runs.size(), 6u);
  const std::vector<double> rates(6, FlopsPerToken(experiment));

  // At one token a second: 100 x 32 tokens forward and backward, and 3
  // evaluations (before step 1, at 50, at 100) of 24 tokens forward, a third
  // of that. Six runs on two threads.
  EXPECT_DOUBLE_EQ(EstimatedSeconds(experiment, runs, rates),
                   6 * (3200 + 3 * 24 / 3.0) / 2);
}

TEST(Cost, MeasuresSmallAndLargeModels) {
  const Experiment own = With({"arms.mxfp8.payload=mx1x32"});
  EXPECT_GT(MeasureRate(own, own.arms[1]).flops_per_second, 0);
  EXPECT_NE(MeasureRate(own, own.arms[1]).how.find("this model"),
            std::string::npos);

  const Experiment large =
      With({"model.dim=1024", "model.dense_hidden_dim=4096"});
  EXPECT_GT(MeasureRate(large, large.arms[1]).flops_per_second, 0);
  EXPECT_NE(MeasureRate(large, large.arms[1]).how.find("dsv3-nano"),
            std::string::npos);

  // Its tokens meet few of the 1024 experts, but all weights would be made.
  const Experiment wide =
      With({"model.num_experts=1024", "model.moe_hidden_dim=512"});
  EXPECT_NE(MeasureRate(wide, wide.arms[1]).how.find("dsv3-nano"),
            std::string::npos);
}

}  // namespace
}  // namespace isoloss::train::cost_test
