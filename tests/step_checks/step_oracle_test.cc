// Whole steps: correct ones pass, and one wrong element of any tensor is found.
#include "isoloss/step_checks/step_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/targets.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::step_oracle_test {
namespace {

/// Expects no `other`, and no tensor with far more flips than expected.
void ExpectExplained(const train::Experiment& experiment,
                     const std::string& arm, double most_noise = 1.5) {
  FirstStep step(experiment, arm);
  ReportSink sink;

  step.Check(sink);

  EXPECT_GE(sink.comparisons().size(), step.record().tensors().size());
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    const runlog::OracleRow row = comparison.Row();
    EXPECT_EQ(row.other, 0)
        << arm << ": " << tensor << " [" << row.worst_row << ", "
        << row.worst_column << "] is " << row.worst_value << ", not "
        << row.worst_expected << "; ratio " << row.worst_ratio;
    EXPECT_LE(row.worst_ratio, 1.0) << arm << ": " << tensor;
    if (std::isnan(row.noise_ratio)) {
      // Poisson, five standard deviations; expected flips are those of the
      // ascending order, and a tree has fewer.
      EXPECT_LE(static_cast<double>(row.flips),
                row.expected_flips + 5 * std::sqrt(row.expected_flips) + 5)
          << arm << ": " << tensor;
    } else if (row.elements > 100) {
      // A few elements may all lie at the end of their interval.
      EXPECT_LT(row.noise_ratio, most_noise) << arm << ": " << tensor;
    }
  }
  for (const auto& row : sink.routing()) EXPECT_EQ(row.other, 0) << arm;
}

TEST(StepOracle, ExplainsEveryRecipe) {
  const train::Experiment experiment = Trial();
  for (const train::Arm& arm : experiment.arms) {
    ExpectExplained(experiment, arm.name);
  }
}

TEST(StepOracle, ExplainsEveryKindOfModel) {
  const std::vector<std::vector<std::string>> kinds = {
      {"model.q_lora_rank=24", "model.tied_embeddings=true"},
      {"model.score_function=softmax", "model.route_norm=false"},
      {"model.num_experts=8", "model.num_expert_groups=4",
       "model.num_limited_groups=2"},
      {"model.num_shared_experts=0", "model.yarn=true"},
      {"model.n_dense_layers=2"},
      {"model.n_dense_layers=0", "routing.mode=forced_balance"},
  };
  for (const std::vector<std::string>& overrides : kinds) {
    SCOPED_TRACE(overrides.front());
    for (const char* arm : {"fp32", "mxfp8_rceil"}) {
      ExpectExplained(Trial(overrides), arm);
    }
  }
}

TEST(StepOracle, ExplainsEveryExchange) {
  const std::vector<std::string> mesh = {"parallel.ranks=2",
                                         "parallel.ranks_per_node=1",
                                         "parallel.dispatch_units=2"};
  for (const char* exchange :
       {"parallel.exchange=flat", "parallel.exchange=rank",
        "parallel.exchange=node", "parallel.weight_site=before_fc2",
        "parallel.expert_padding=32"}) {
    SCOPED_TRACE(exchange);
    std::vector<std::string> overrides = mesh;
    overrides.emplace_back(exchange);
    if (std::string(exchange).ends_with("before_fc2")) {
      overrides.emplace_back("parallel.exchange=rank");
    }
    ExpectExplained(Trial(overrides), "mxfp8_rceil");
  }
}

// The golden runs' products are shorter: one of more than 1024 tokens is added
// up in blocks (kernels/gemm-inl.h), and its steps record no digests.
TEST(StepOracle, ExplainsProductsOfMoreThan1024Tokens) {
  const train::Experiment experiment = SmallTrial(
      /*sequence_length=*/1056,
      {"train.sequences_per_batch=1", "data.tokens=40000"});
  // Terms of 23 tokens repeat, so that roundings do, and their errors add up:
  // up to the gate's noise_ratio_limit.
  for (const char* arm : {"bf16", "mxfp8_rceil"}) {
    ExpectExplained(experiment, arm, /*most_noise=*/4);
  }
}

// The golden runs use the best target of their machine only.
TEST(StepOracle, ExplainsEveryKernelTarget) {
  for (const std::string& target : kernels::SupportedTargets()) {
    SCOPED_TRACE(target);
    kernels::ForceTarget(target);
    for (const char* arm : {"fp32", "bf16", "mxfp8_rceil"}) {
      ExpectExplained(SmallTrial(/*sequence_length=*/33), arm);
    }
  }
  kernels::ForceTarget("");
}

// MoeCheck.FindsNothingInAnyExchange has the sums of each; here whole steps
// have each payload in each direction, and what their logs say of bytes.
TEST(StepOracle, ExplainsEveryPayload) {
  for (const char* payload : {"mx1x32", "e4m3_1x128_fp32", "e4m3_1x128_pow2"}) {
    for (const char* exchange : {"flat", "rank", "node", "titan_bf16"}) {
      SCOPED_TRACE(std::string(payload) + " " + exchange);
      ExpectExplained(
          SmallTrial(/*sequence_length=*/9,
                     {"parallel.ranks=4", "parallel.ranks_per_node=2",
                      std::string("parallel.exchange=") + exchange,
                      std::string("parallel.payload=") + payload,
                      std::string("parallel.gradient_payload=") + payload}),
          "mxfp8_rceil");
    }
  }
}

/// Moves the largest element of a tensor by two steps of BF16, 2^-7 to 2^-6 of
/// itself.
void Spoil(Matrix<float>& values) {
  size_t largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values.data()[i]) > std::fabs(values.data()[largest])) {
      largest = i;
    }
  }
  float& value = values.data()[largest];
  value =
      value == 0.0f ? 1.0f : formats::RoundToBf16(value * (1.0f + 3 * 0x1p-8f));
}

TEST(StepOracle, FindsOneWrongElementOfAnyTensor) {
  FirstStep step(SmallTrial(), "mxfp8_rceil");
  ASSERT_EQ(step.Others(), 0);
  for (const RecordedTensor* tensor : step.record().tensors()) {
    Matrix<float>& values = step.record().MutableAt(tensor->name).values;
    Matrix<float> before;
    before.CopyFrom(values);

    Spoil(values);

    EXPECT_GT(step.Others(), 0) << tensor->name;
    values.CopyFrom(before);
  }
}

TEST(StepOracle, FindsOneNanInAnyTensor) {
  FirstStep step(SmallTrial(), "mxfp8_rceil");
  const auto& tensors = step.record().tensors();
  // Each third one, for time: a NaN is treated alike in all.
  for (size_t i = 0; i < tensors.size(); i += 3) {
    const std::string& name = tensors[i]->name;
    float& value = step.record().MutableAt(name).values(0, 0);
    const float before = value;

    value = std::nanf("");

    EXPECT_GT(step.Others(), 0) << name;
    value = before;
  }
}

TEST(StepOracle, DoesNotBelieveAnnouncedFormats) {
  FirstStep step(Trial(), "mxfp8_rceil");
  RecordedTensor& tensor =
      step.record().MutableAt("layers.0.attention.wo_gradient");

  tensor.rowwise.scale_rule = formats::ScaleRule::kFloor;
  EXPECT_GT(step.Others(), 0);
  tensor.rowwise.scale_rule = formats::ScaleRule::kRceil;
  EXPECT_EQ(step.Others(), 0);
  tensor.quantized_columnwise = false;
  EXPECT_GT(step.Others(), 0);
}

TEST(StepOracle, DoesNotBelieveAnnouncedRows) {
  FirstStep step(Trial(), "mxfp8_rceil");
  RecordedTensor& tensor =
      step.record().MutableAt("layers.1.moe.routed_experts.w1_activation");
  ASSERT_GT(tensor.begins.size(), 2);

  ++tensor.begins[1];

  EXPECT_GT(step.Others(), 0);
}

/// A record with all tensors of another one that `keep` likes.
template <typename Keep>
void CopyTensors(const StepRecord& from, StepRecord& to, const Keep& keep) {
  for (const RecordedTensor* tensor : from.tensors()) {
    if (!keep(tensor->name)) continue;
    const size_t end = tensor->name.rfind('_');
    to.OnTensor(
        {.module = std::string_view(tensor->name).substr(0, end),
         .kind = tensor->kind,
         .values = tensor->values.view(),
         .rows = {.begins = tensor->begins,
                  .segment_ends = tensor->segment_ends},
         .rowwise = tensor->quantized_rowwise ? &tensor->rowwise : nullptr,
         .columnwise =
             tensor->quantized_columnwise ? &tensor->columnwise : nullptr});
  }
}

TEST(StepOracle, MissesWhatWasNotAnnounced) {
  FirstStep step(Trial(), "bf16");
  StepRecord whole;
  CopyTensors(step.record(), whole, [](const std::string&) { return true; });
  const std::string missing = "layers.0.feed_forward.w2_wgrad";
  StepRecord part;
  CopyTensors(step.record(), part,
              [&](const std::string& name) { return name != missing; });
  for (StepRecord* record : {&whole, &part}) {
    const std::string router = "layers.1.moe.router";
    record->OnRouting(router, step.record().ExpertIds(router), 0);
  }

  std::swap(step.record(), whole);
  EXPECT_EQ(step.Others(), 0);
  std::swap(step.record(), part);
  EXPECT_GT(step.Others(), 0);
}

TEST(StepOracle, MindsWhatNoCheckKnowsOrComesTwice) {
  FirstStep step(Trial(), "bf16");
  const Matrix<float> values(2, 2);
  step.record().OnTensor({.module = "layers.0.surprise",
                          .kind = model::TensorKind::kOutput,
                          .values = values.view()});
  EXPECT_EQ(step.Others(), 1);

  step.record().OnTensor({.module = "norm",
                          .kind = model::TensorKind::kOutput,
                          .values = values.view()});
  EXPECT_EQ(step.Others(), 2);
}

}  // namespace
}  // namespace isoloss::step_checks::step_oracle_test
