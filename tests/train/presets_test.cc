#include "isoloss/train/presets.h"

#include <gtest/gtest.h>

#include <string>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train::presets_test {
namespace {

class PresetConformance : public testing::TestWithParam<std::string> {};

/// Presets for convergence; the others show in a few steps of many ranks where
/// rows travel.
class TrainingPresetConformance : public PresetConformance {};

TEST_P(PresetConformance, IsAValidModelWhoseSizeIsEstimatedExactly) {
  const Preset& preset = PresetByName(GetParam());

  model::Validate(preset.model, "preset");

  double values = 0;  // not all of which this machine needs to hold
  for (const model::ParameterSpec& parameter :
       model::ParametersOf(preset.model)) {
    double product = 1;
    for (const size_t extent : parameter.shape) {
      product *= static_cast<double>(extent);
    }
    values += product;
  }
  EXPECT_EQ(EstimatedParameters(preset.model), values);
}

// DeepSeek's reports say 37B of 671B, and 2.4B of 16B; both are rounded, and
// count embeddings in different ways: 2.4B leaves out one of two tables.
TEST(ActiveParameters, AreThoseOfDeepSeeksReports) {
  // The widths, depths and tables of DeepSeek-V3 and DeepSeek-V2-Lite.
  model::ModelConfig large = PresetByName("dsv3-671b-topology").model;
  large.vocab_size = 129280;
  large.dim = 7168;
  large.n_layers = 61;
  large.n_dense_layers = 3;
  large.n_heads = 128;
  large.q_lora_rank = 1536;
  large.kv_lora_rank = 512;
  large.dense_hidden_dim = 18432;
  large.moe_hidden_dim = 2048;
  model::ModelConfig small = PresetByName("dsv3-16b-topology").model;
  small.vocab_size = 102400;
  small.dim = 2048;
  small.n_layers = 27;
  small.n_dense_layers = 1;
  small.n_heads = 16;
  small.kv_lora_rank = 512;
  small.dense_hidden_dim = 10944;
  small.moe_hidden_dim = 1408;
  for (model::ModelConfig* model : {&large, &small}) {
    model->qk_nope_head_dim = 128;
    model->qk_rope_head_dim = 64;
    model->v_head_dim = 128;
  }

  EXPECT_NEAR(ActiveParameters(large) / 37e9, 1, 0.02);
  EXPECT_NEAR(ActiveParameters(small) / 2.4e9, 1, 0.12);
}

TEST_P(PresetConformance, HasAMeshThatFits) {
  const Experiment experiment = ParseExperiment(
      "name = \"t\"\nmodel.preset = \"" + GetParam() +
          "\"\ndata.source = \"synthetic\"\narms.a.recipe = \"bf16\"\n",
      "experiment.toml");

  EXPECT_EQ(experiment.parallel.mesh.ranks,
            PresetByName(GetParam()).parallel.mesh.ranks);
}

TEST(Presets, ThoseForAGpuLookAtTensorsLessOften) {
  const auto log = [](const std::string& keys) {
    return ParseExperiment(keys +
                               "\nname = \"t\"\ndata.source = \"synthetic\"\n"
                               "arms.a.recipe = \"bf16\"\n",
                           "experiment.toml")
        .log;
  };

  const LogConfig large = log("model.preset = \"dsv3-100m\"");
  EXPECT_EQ(large.statistics_every, 1000);
  EXPECT_EQ(large.digests_every, 1000);
  EXPECT_EQ(large.eval_every, LogConfig().eval_every);
  EXPECT_EQ(log("model.preset = \"dsv3-30m\"\nlog.statistics_every = 500")
                .statistics_every,
            500);
  EXPECT_EQ(log("model.preset = \"dsv3-small\"").statistics_every,
            LogConfig().statistics_every);
}

TEST_P(TrainingPresetConformance, WarmsUpAndBalancesFastEnoughNotToCollapse) {
  const TrainConfig& train = PresetByName(GetParam()).train;

  // Faster than DeepSeek-V3's rate, with which models of this size collapsed.
  EXPECT_GT(train.load_balance_coeff, 0.001);
  EXPECT_GE(train.warmup_steps, 100);
  EXPECT_GE(train.steps, 300);
  EXPECT_GE(train.seeds.size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(All, PresetConformance,
                         testing::ValuesIn(PresetNames()));
INSTANTIATE_TEST_SUITE_P(All, TrainingPresetConformance,
                         testing::Values("dsv3-nano", "dsv3-small",
                                         "torchtitan-debug", "dsv3-30m",
                                         "dsv3-100m", "dsv3-300m", "dsv3-1b"));

TEST(Presets, SuggestTheNearestName) {
  try {
    PresetByName("dsv3-smal");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "unknown preset `dsv3-smal`. Known presets: dsv3-nano, "
                 "dsv3-small, torchtitan-debug, dsv3-671b-topology, "
                 "dsv3-16b-topology, dsv3-16b-layer, dsv3-30m, dsv3-100m, "
                 "dsv3-300m, dsv3-1b. Did you mean `dsv3-small`?");
  }
}

TEST(Presets, TopologiesAreThoseOfTheRegistry) {
  const Preset& large = PresetByName("dsv3-671b-topology");
  const Preset& small = PresetByName("dsv3-16b-topology");

  EXPECT_EQ(large.model.num_experts, 256u);
  EXPECT_EQ(large.model.top_k, 8u);
  EXPECT_EQ(large.model.num_expert_groups, 8u);
  EXPECT_EQ(large.model.num_limited_groups, 4u);
  EXPECT_EQ(large.model.score_function, model::ScoreFunction::kSigmoid);
  EXPECT_TRUE(large.model.route_norm);
  EXPECT_EQ(large.model.route_scale, 2.5);
  EXPECT_EQ(large.parallel.mesh.ranks, 256u);
  EXPECT_EQ(large.parallel.mesh.ranks_per_node, 8u);
  EXPECT_EQ(small.model.num_experts, 64u);
  EXPECT_EQ(small.model.top_k, 6u);
  EXPECT_EQ(small.model.num_shared_experts, 2u);
  EXPECT_EQ(small.model.score_function, model::ScoreFunction::kSoftmax);
  EXPECT_FALSE(small.model.route_norm);
  EXPECT_EQ(small.model.route_scale, 1.0);
  // The layer has the widths of DeepSeek-V2-Lite as well.
  const model::ModelConfig& layer = PresetByName("dsv3-16b-layer").model;
  EXPECT_EQ(layer.num_experts, small.model.num_experts);
  EXPECT_EQ(layer.top_k, small.model.top_k);
  EXPECT_EQ(layer.num_shared_experts, small.model.num_shared_experts);
  EXPECT_EQ(layer.score_function, small.model.score_function);
  EXPECT_FALSE(layer.route_norm);
  EXPECT_EQ(layer.dim, 2048u);
  EXPECT_EQ(layer.moe_hidden_dim, 1408u);
  EXPECT_EQ(layer.n_moe_layers(), 1u);
  for (const size_t ranks : {8, 32}) {
    EXPECT_EQ(small.model.num_experts % ranks, 0u);
  }
}

}  // namespace
}  // namespace isoloss::train::presets_test
