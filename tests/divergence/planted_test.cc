// One element of one tensor is changed in one of two equal runs: the step and
// the tensor that the comparison of their logs names are those.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/compare/tensor_divergence.h"
#include "isoloss/train/trainer.h"
#include "planted_places.h"

namespace isoloss::compare::planted_test {
namespace {

using testing::ElementsAreArray;
using train::Experiment;
using train::RunHooks;

/// A dense and an MoE layer, compressed queries, a shared expert; 8 experts on
/// 4 ranks.
constexpr std::string_view kText = R"(name = "planted"
[model]
vocab_size = 23
dim = 32
n_layers = 2
n_dense_layers = 1
n_heads = 2
q_lora_rank = 16
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 40
moe_hidden_dim = 32
num_experts = 8
num_shared_experts = 1
top_k = 2
[data]
source = "synthetic"
sequence_length = 16
noise_levels = 4
tokens = 4000
[train]
steps = 5
sequences_per_batch = 2
seeds = [1]
warmup_steps = 1
lr = 0.01
[parallel]
ranks = 4
[log]
eval_every = 5
eval_sequences = 2
statistics_first = 0
statistics_every = 0
digests_first = 5
digests_every = 0
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)";

const Experiment& ExperimentWith(bool statistics) {
  static const auto parse = [](std::vector<std::string> overrides) {
    return train::ParseExperiment(
        kText, "planted.toml",
        {.variables = {}, .overrides = std::move(overrides)});
  };
  static const Experiment exact = parse({});
  static const Experiment bounded =
      parse({"log.statistics_first=5", "log.digests_first=0"});
  return statistics ? bounded : exact;
}

/// Trains up to the end of step `last`.
runlog::RunLog RunUpTo(int64_t last, const std::string& arm, RunHooks hooks,
                       bool statistics = false) {
  const Experiment& experiment = ExperimentWith(statistics);
  static const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  std::atomic<bool> stop{false};
  hooks.on_step = [&](const runlog::StepRow& row) { stop = row.step >= last; };
  hooks.stop = &stop;
  Executor executor(1);
  const auto found = std::find_if(
      experiment.arms.begin(), experiment.arms.end(),
      [&](const train::Arm& candidate) { return candidate.name == arm; });
  return TrainRun(experiment, *found, /*seed=*/1, corpus, executor, hooks);
}

/// The run that nothing is planted in, with all its steps.
const runlog::RunLog& Untouched(const std::string& arm,
                                bool statistics = false) {
  static std::map<std::pair<std::string, bool>, runlog::RunLog> logs;
  const auto [log, is_new] = logs.try_emplace({arm, statistics});
  if (is_new) log->second = RunUpTo(5, arm, {}, statistics);
  return log->second;
}

// What is named ---------------------------------------------------------------

/// Exactly `name` at `step`, and what is before it agrees.
void ExpectNamed(const TensorDivergence& found, int64_t step,
                 const std::string& name, const runlog::RunLog& log) {
  EXPECT_EQ(found.step, step);
  EXPECT_EQ(found.name, name);
  EXPECT_TRUE(found.is_tensor);
  EXPECT_NE(found.a, found.b);
  const std::optional<int64_t> before =
      step == 1 ? std::nullopt : std::optional(step - 1);
  EXPECT_EQ(found.last_equal_step, before);

  const std::vector<std::string>& names = log.tensors.names;
  const auto place = std::find(names.begin(), names.end(), name);
  ASSERT_NE(place, names.end());
  EXPECT_EQ(found.agreeing_count, place - names.begin());
  const auto count = std::min<std::ptrdiff_t>(3, place - names.begin());
  EXPECT_THAT(found.agreeing, ElementsAreArray(place - count, place));
}

constexpr const char* kRouter = "layers.1.moe.router";

runlog::RunLog RunWith(const Place& place, const std::string& arm,
                       bool& planted, bool statistics = false) {
  RunHooks hooks;
  place.plant(hooks, place.step, planted);
  return RunUpTo(place.step, arm, hooks, statistics);
}

class PlantedTest
    : public testing::TestWithParam<std::tuple<std::string, Place>> {};

TEST_P(PlantedTest, IsNamedWithItsStep) {
  const auto& [arm, place] = GetParam();
  bool planted = false;

  const runlog::RunLog touched = RunWith(place, arm, planted);
  const DivergenceReport report = FindDivergence(Untouched(arm), touched);

  ASSERT_TRUE(planted);
  ASSERT_TRUE(report.first.has_value());
  ExpectNamed(*report.first, place.step, place.name, touched);
  EXPECT_EQ(report.first->quantity, "digest");
  EXPECT_FALSE(report.HidesTensors());
  EXPECT_EQ(touched.steps.step.back(), place.step);
}

/// "mxfp8_step2_layers_1_moe_output".
std::string TestName(
    const testing::TestParamInfo<std::tuple<std::string, Place>>& test) {
  const auto& [arm, place] = test.param;
  std::string name = fmt::format("{}_step{}_{}", arm, place.step, place.label);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Places, PlantedTest,
                         testing::Combine(testing::Values("bf16", "mxfp8"),
                                          testing::ValuesIn(AllPlaces())),
                         TestName);

class PlantedInArmTest : public testing::TestWithParam<std::string> {};

TEST_P(PlantedInArmTest, NothingDivergesWithoutIt) {
  const runlog::RunLog& a = Untouched(GetParam());
  const runlog::RunLog b = RunUpTo(5, GetParam(), {});

  const DivergenceReport report = FindDivergence(a, b);

  EXPECT_FALSE(report.first.has_value());
  EXPECT_THAT(report.tensor_steps, testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_GT(a.tensors.names.size(), 100u);
}

TEST_P(PlantedInArmTest, EveryAnnouncedTensorIsNamed) {
  const runlog::RunLog& untouched = Untouched(GetParam());

  for (const std::string& name : untouched.tensors.names) {
    if (name.ends_with("_expert_ids")) continue;
    SCOPED_TRACE(name);
    bool planted = false;
    const runlog::RunLog touched =
        RunWith(InTensor(1, name, Flip(kLastBit)), GetParam(), planted);
    const DivergenceReport report = FindDivergence(untouched, touched);
    ASSERT_TRUE(planted);
    ASSERT_TRUE(report.first.has_value());
    ExpectNamed(*report.first, 1, name, touched);
  }
}

runlog::RunLog RunWithRaisedBias(const std::string& arm, float by,
                                 bool& planted) {
  RunHooks hooks;
  hooks.after_update = [by, &planted](int64_t step, model::ParameterSet&,
                                      MatrixView<float> bias) {
    if (step != 2) return;
    const float before = bias(0, 3);
    bias(0, 3) += by;
    planted = bias(0, 3) != before;
  };
  return RunUpTo(5, arm, hooks);
}

/// A bias is no tensor that a step announces: what is computed from it is the
/// choice of experts, which so small a change leaves alone. The log keeps the
/// bias itself.
TEST_P(PlantedInArmTest, ExpertBiasIsNamedInItsStep) {
  for (const float by : {1e-6F, 2.0F}) {
    bool planted = false;

    const runlog::RunLog touched = RunWithRaisedBias(GetParam(), by, planted);
    const DivergenceReport report =
        FindDivergence(Untouched(GetParam()), touched);

    ASSERT_TRUE(planted);
    ASSERT_TRUE(report.first.has_value());
    EXPECT_EQ(report.first->step, 2);
    EXPECT_EQ(report.first->quantity, "expert_bias");
    EXPECT_EQ(report.first->name, "MoE layer 0, expert 3");
    EXPECT_EQ(report.first->phase, Phase::kOptimizer);
    EXPECT_EQ(report.first->last_equal_step, 1);
  }
}

/// Without that column the first thing computed from another choice is named,
/// in the step after.
TEST_P(PlantedInArmTest, ExpertBiasThatIsNotLoggedIsNamedByWhatItChooses) {
  bool planted = false;

  runlog::RunLog touched = RunWithRaisedBias(GetParam(), 2.0F, planted);
  touched.moe.expert_bias.clear();
  const DivergenceReport report =
      FindDivergence(Untouched(GetParam()), touched);

  ASSERT_TRUE(planted);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_THAT(report.first->name,
              testing::AnyOf(std::string(kRouter) + ".topk_weights_output",
                             std::string(kRouter) + "_expert_ids"));
  ExpectNamed(*report.first, 3, report.first->name, touched);
}

TEST_P(PlantedInArmTest, ExperimentsOfTwoSeedsPartAtTheFirstTensor) {
  const Experiment& experiment = ExperimentWith(false);
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  Executor executor(1);
  const runlog::RunLog other =
      TrainRun(experiment, experiment.arms[GetParam() == "bf16" ? 0 : 1],
               /*seed=*/2, corpus, executor);

  const DivergenceReport report = FindDivergence(Untouched(GetParam()), other);

  ASSERT_TRUE(report.first.has_value());
  ExpectNamed(*report.first, 1, other.tensors.names.front(), other);
}

// Bounded ---------------------------------------------------------------------

/// Four times the largest in place of one.
bool Enlarge(MatrixView<float> values) {
  float* element = ElementOf(values);
  if (element == nullptr) return false;
  float largest = 0;
  for (size_t r = 0; r < values.rows(); ++r) {
    for (size_t c = 0; c < values.cols(); ++c) {
      largest = std::max(largest, std::fabs(values(r, c)));
    }
  }
  *element = 4 * largest;
  return true;
}

TEST_P(PlantedInArmTest, LargeChangesAreNamedWithinATolerance) {
  const runlog::RunLog& untouched = Untouched(GetParam(), true);
  const DivergenceOptions bounded = {.tolerance = 0.01};

  for (const auto& [step, name] : std::vector<std::pair<int64_t, std::string>>{
           {1, "layers.0.attention_norm_output"},
           {2, "layers.0.attention.wkv_b_output"},
           {5, "layers.1.moe.router.gate_output"},
           {2, "layers.1.moe.routed_experts.w2_output"},
           {1, "layers.1.moe.routed_experts_output"},
           {2, "lm_head_gradient"},
           {5, "layers.1.moe.routed_experts.w2_dgrad"},
           {2, "layers.0.attention.wo_wgrad"},
           {2, "layers.1.moe.routed_experts.w2_parameter"}}) {
    SCOPED_TRACE(name);
    bool planted = false;
    const Place place = InTensor(step, name, Enlarge);
    const runlog::RunLog touched =
        RunWith(place, GetParam(), planted, /*statistics=*/true);
    const DivergenceReport report = FindDivergence(untouched, touched, bounded);
    ASSERT_TRUE(planted);
    ASSERT_TRUE(report.first.has_value());
    ExpectNamed(*report.first, step, name, touched);
    EXPECT_NE(report.first->quantity, "digest");
  }
}

TEST_P(PlantedInArmTest, OneBitIsWithinATolerance) {
  // The last bit of a BF16 value is at most 2^-7 = 0.0078 of it, and so is the
  // largest share by which any statistic can change: l2_norm, cur_amax and std
  // by less, the mean by that share of one element of 1024.
  bool planted = false;
  const runlog::RunLog touched =
      RunWith(InTensor(5, "tok_embeddings_gradient", Flip(kBf16Bit)),
              GetParam(), planted,
              /*statistics=*/true);

  const DivergenceReport report =
      FindDivergence(Untouched(GetParam(), true), touched, {.tolerance = 0.01});

  ASSERT_TRUE(planted);
  EXPECT_FALSE(report.first.has_value());
  EXPECT_TRUE(
      FindDivergence(Untouched(GetParam(), true), touched).first.has_value());
}

INSTANTIATE_TEST_SUITE_P(Arms, PlantedInArmTest,
                         testing::Values("bf16", "mxfp8"),
                         [](const auto& arm) { return arm.param; });

}  // namespace
}  // namespace isoloss::compare::planted_test
