// A sampled step is judged as a full one, and what it sees is found.
#include "isoloss/step_checks/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/runlog/probe_log.h"
#include "isoloss/train/presets.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::sampling_test {
namespace {

std::vector<oracle::Place> Seen(const oracle::Sample& sample) {
  std::vector<oracle::Place> places;
  sample.ForEach([&](size_t row, size_t column) {
    places.push_back({row, column});
  });
  return places;
}

TEST(Sampling, IsOfTheSeedTheStepAndTheTensor) {
  const auto seen = [](uint64_t seed, uint64_t step, const char* tensor) {
    return Seen(Sampling(seed, step).Of(tensor, 200, 100));
  };
  EXPECT_EQ(seen(1, 2, "a_output"), seen(1, 2, "a_output"));
  EXPECT_NE(seen(1, 2, "a_output"), seen(2, 2, "a_output"));
  EXPECT_NE(seen(1, 2, "a_output"), seen(1, 3, "a_output"));
  EXPECT_NE(seen(1, 2, "a_output"), seen(1, 2, "b_output"));
  EXPECT_TRUE(Sampling().Of("a_output", 200, 100).all());
  EXPECT_TRUE(Sampling(1, 2).Of("a_output", kDraws, 1).all());
  EXPECT_EQ(Sampling(1, 2).Of("a_output", kDraws, 2).draws(), kDraws);
}

TEST(Sampling, LooksAtEdges) {
  // Draws alone see a quarter of an element of each row.
  const std::vector<size_t> begins = {0, 12'000, 12'000, 15'000, 30'000};
  const oracle::Sample sample =
      Sampling(1, 2).Of("a_output", 30'000, 100, begins);
  EXPECT_EQ(sample.draws(), kDraws);
  for (const size_t last : {11'999, 14'999, 29'999}) {
    EXPECT_TRUE(sample.Sees(last, 99)) << last;
    EXPECT_GE(sample.In(last, last + 1).size(), 10u) << last;
  }
  size_t of_column = 0;
  for (size_t row = 0; row < 30'000; ++row) of_column += sample.Sees(row, 99);
  // Draws alone see 69, with a standard deviation of 8.3.
  EXPECT_GT(of_column, 105u);
  // Few draws stand for whole heads or tensors, which cost more.
  EXPECT_LE(Sampling(1, 2).Few("a_output", 300, 100, 8).seen(), 8u);
}

TEST(Sampling, DrawsAreThoseThatOneInAThousandNeeds) {
  EXPECT_LE(std::pow(0.999, kDraws), runlog::kMissChance);
  EXPECT_GT(std::pow(0.999, kDraws - 1), runlog::kMissChance);
}

TEST(Sampling, IsOfLargeStepsOnly) {
  for (const char* preset : {"dsv3-nano", "dsv3-small", "torchtitan-debug"}) {
    EXPECT_FALSE(
        IsLarge(Trial({"model.preset=\"" + std::string(preset) + "\""})))
        << preset;
  }
  // 98 M parameters and 16,384 tokens.
  EXPECT_TRUE(IsLarge(Trial(
      {"model.vocab_size=8192", "model.dim=512", "model.n_layers=9",
       "model.n_heads=8", "model.q_lora_rank=256", "model.kv_lora_rank=128",
       "model.dense_hidden_dim=2048", "model.moe_hidden_dim=256",
       "model.num_experts=24", "model.top_k=4", "data.sequence_length=1024",
       "train.sequences_per_batch=16", "data.tokens=40000"})));
}

/// Its tensors of tokens and its larger weights have more elements than draws.
train::Experiment Wide(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {
      "data.sequence_length=150", "model.dense_hidden_dim=128",
      "model.num_experts=5", "data.tokens=4000"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return Trial(overrides);
}

class SampledStep : public testing::TestWithParam<const char*> {};

TEST_P(SampledStep, HasAllTensorsAndNothingWrong) {
  FirstStep step(Wide({std::string("arms.fp32.recipe=") + GetParam()}), "fp32");
  step.Sample();
  ReportSink sink;

  step.Check(sink);

  int64_t unseen = 0;
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    const runlog::OracleRow row = comparison.Row();
    EXPECT_EQ(row.other, 0) << tensor;
    EXPECT_EQ(row.draws == 0, row.unseen_elements == 0) << tensor;
    EXPECT_LE(static_cast<double>(row.flips),
              row.expected_flips + 5 * std::sqrt(row.expected_flips) + 5)
        << tensor;
    unseen += row.unseen_elements;
  }
  EXPECT_GT(unseen, 100000);
  for (const RecordedTensor* tensor : step.record().tensors()) {
    EXPECT_EQ(sink.comparisons().at(tensor->name).tensor_elements(),
              static_cast<int64_t>(tensor->values.size()))
        << tensor->name;
  }
}

// 450 rows of 23 gradients: each row has a draw, so that all losses are seen.
TEST(SampledSteps, TellOfNoDrawsWhereNothingIsLeftOut) {
  FirstStep step(Wide({"data.sequence_length=225", "data.tokens=8000"}),
                 "bf16");
  step.Sample();
  ReportSink sink;

  step.Check(sink);

  const runlog::OracleRow losses = sink.comparisons().at("loss_output").Row();
  EXPECT_EQ(losses.unseen_elements, 0);
  EXPECT_EQ(losses.draws, 0);
  EXPECT_GT(sink.comparisons().at("lm_head_gradient").Row().unseen_elements, 0);
}

INSTANTIATE_TEST_SUITE_P(Recipes, SampledStep,
                         testing::Values("fp32", "bf16", "mxfp8_rceil",
                                         "deepseek_v3_fp8", "te_nvfp4"));

TEST(SampledSteps, FindAWrongElementThatTheySee) {
  FirstStep step(Wide(), "mxfp8_rceil");
  step.Sample();
  ASSERT_EQ(step.Others(), 0);
  int sampled = 0;
  for (const RecordedTensor* tensor : step.record().tensors()) {
    const oracle::Sample sample = Sampling(1, 1).Of(
        tensor->name, tensor->values.rows(), tensor->values.cols());
    // A part of attention, or of a tensor, has a sample of its own.
    if (sample.all() || tensor->name.find("inner") != std::string::npos ||
        tensor->name.ends_with("wkv_b_gradient") ||
        tensor->name.ends_with("wkv_a_gradient") ||
        tensor->name.ends_with("_parameter") ||
        tensor->name.ends_with("_update") ||
        tensor->name.ends_with("_weight")) {
      continue;
    }
    Matrix<float>& values = step.record().MutableAt(tensor->name).values;
    const oracle::Place place = Seen(sample)[17];
    const float before = values(place.row, place.column);

    values(place.row, place.column) += 1.0f;

    EXPECT_GT(step.Others(), 0) << tensor->name;
    values(place.row, place.column) = before;
    ++sampled;
  }
  EXPECT_GT(sampled, 20);
}

TEST(SampledSteps, DoNotDependOnTheThreads) {
  FirstStep step(Wide(), "mxfp8_rceil");
  step.Sample();
  ReportSink one;
  ReportSink three;
  Executor executor(3);

  step.Check(one);
  step.Check(executor, three);

  ASSERT_EQ(one.comparisons().size(), three.comparisons().size());
  for (const auto& [tensor, comparison] : one.comparisons()) {
    const runlog::OracleRow a = comparison.Row();
    const runlog::OracleRow b = three.comparisons().at(tensor).Row();
    EXPECT_EQ(a.elements, b.elements) << tensor;
    EXPECT_EQ(a.equal, b.equal) << tensor;
    EXPECT_EQ(a.flips, b.flips) << tensor;
    EXPECT_EQ(a.expected_flips, b.expected_flips) << tensor;
    EXPECT_EQ(a.worst_column, b.worst_column) << tensor;
  }
}

// A fault of a whole tensor is found at once, whatever is drawn.
TEST(SampledSteps, FindAWholeTensorThatIsWrong) {
  FirstStep step(Wide(), "mxfp8_rceil");
  step.Sample();
  for (const char* name :
       {"layers.0.attention.inner_attention_output",
        "layers.0.attention.inner_attention.q_gradient",
        "layers.0.attention.inner_attention.k_gradient",
        "layers.0.attention.wkv_a_gradient",
        "layers.0.attention.wkv_b_gradient", "layers.0.feed_forward.w1_update",
        "layers.0.feed_forward.w1_parameter",
        "layers.0.feed_forward.w1_weight"}) {
    Matrix<float>& values = step.record().MutableAt(name).values;
    Matrix<float> before;
    before.CopyFrom(values);

    for (size_t i = 0; i < values.size(); ++i) values.data()[i] += 1.0f;

    EXPECT_GT(step.Others(), 1000) << name;
    values.CopyFrom(before);
  }
}

}  // namespace
}  // namespace isoloss::step_checks::sampling_test
