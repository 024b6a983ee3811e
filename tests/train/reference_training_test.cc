// Five optimizer steps against torchtitan's (golden/reference/README.md):
// forward, backward, clip, expert-bias update, AdamW.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/model/transformer.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "isoloss/precision/recipe.h"
#include "model/reference.h"

namespace isoloss::test_support::reference_training_test {
namespace {

// The limits that the reference suggests.
constexpr double kLossLimit = 1e-5;
constexpr double kNormLimit = 2e-5;  // relative
constexpr double kBiasLimit = 1e-6;
/// RMS of the difference, as a share of the RMS of the whole update.
constexpr double kFinalRmsLimit = 5e-3;
/// Adam turns noise in a near-zero gradient into up to lr per step.
constexpr double kFinalElementLimit = 2e-3;
double RmsDifference(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

double Norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float v : values) {
    sum += static_cast<double>(v) * static_cast<double>(v);
  }
  return std::sqrt(sum);
}

std::span<const float> ValuesOf(const model::Parameter& parameter) {
  return {parameter.values.data(), parameter.values.size()};
}

class ReferenceTrainingTest : public ::testing::TestWithParam<const char*> {
 protected:
  ReferenceTrainingTest() {
    ReadParameters(file_, "weights", weights_);
    const auto learning_rates = file_.Read<double>("train/lr");
    steps_ = learning_rates.values.size();
    lr_ = learning_rates.values;
  }

  double TrainAttribute(const char* name) const {
    return file_.Attribute<double>(name, "train");
  }

  ReferenceBatch BatchOf(size_t step) const {
    ReferenceBatch batch = ReadMainBatch(file_);
    const size_t tokens = batch.tokens.size();
    const auto slice = [&](const char* name) {
      const auto all = file_.Read<int32_t>(name).values;
      const auto first =
          all.begin() + static_cast<std::ptrdiff_t>(step * tokens);
      return std::vector<int32_t>(first,
                                  first + static_cast<std::ptrdiff_t>(tokens));
    };
    batch.tokens = slice("train/tokens");
    batch.labels = slice("train/labels");
    return batch;
  }

  optim::AdamW MakeOptimizer() {
    std::vector<optim::Tensor> tensors;
    for (size_t i = 0; i < weights_.parameters().size(); ++i) {
      Matrix<float>& weight = weights_.parameters()[i].values;
      Matrix<float>& gradient = gradients_.parameters()[i].values;
      tensors.push_back(
          {{weight.data(), weight.size()}, {gradient.data(), gradient.size()}});
    }
    return optim::AdamW({.beta1 = TrainAttribute("beta1"),
                         .beta2 = TrainAttribute("beta2"),
                         .eps = TrainAttribute("eps"),
                         .weight_decay = TrainAttribute("weight_decay")},
                        tensors);
  }

  /// Norms differ by no more than the norm of the difference, which is held to
  /// kFinalRmsLimit of the update; AdamW moves an element by about lr per step.
  void ExpectParameterNorms(size_t steps_done) const {
    const auto stored = file_.Read<double>("train/param_l2");
    const auto parameters = weights_.parameters();
    ASSERT_EQ(stored.shape, (std::vector{steps_ + 1, parameters.size()}));
    const double path = std::accumulate(
        lr_.begin(), lr_.begin() + static_cast<std::ptrdiff_t>(steps_done),
        0.0);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto values = ValuesOf(parameters[i]);
      const double expected = stored.values[steps_done * parameters.size() + i];
      const double rounding = 1e-12 * expected;
      EXPECT_NEAR(Norm(values), expected,
                  rounding + kFinalRmsLimit * path *
                                 std::sqrt(static_cast<double>(values.size())))
          << parameters[i].name;
    }
  }

  const H5File file_{GoldenPath("reference", std::string(GetParam()) + ".h5")};
  const model::ModelConfig config_ = ReadConfig(file_);
  model::ParameterSet weights_{config_};
  model::ParameterSet gradients_{config_};
  size_t steps_ = 0;
  std::vector<double> lr_;
};

TEST_P(ReferenceTrainingTest, StepsMatchInFp32) {
  Executor executor(2);
  model::Transformer model(config_, precision::RecipeByName("fp32"), executor);
  Matrix<float> bias = ReadExpertBias(file_, config_);
  optim::AdamW optimizer = MakeOptimizer();
  const auto losses = file_.Read<double>("train/loss").values;
  const auto norms = file_.Read<double>("train/grad_norm").values;
  const auto counts = file_.Read<int64_t>("train/tokens_per_expert").values;
  const auto biases = file_.Read<float>("train/expert_bias").values;
  const auto rate = static_cast<float>(TrainAttribute("load_balance_coeff"));
  ASSERT_GE(steps_, 2u);
  ExpectParameterNorms(0);

  for (size_t step = 0; step < steps_; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const ReferenceBatch batch = BatchOf(step);
    model.LoadWeights(weights_);
    model.LoadExpertBias(bias.view());
    const double loss = model.Forward(batch.view());
    model.Backward(batch.view(), gradients_);
    const double norm = optim::GlobalNorm(optimizer.tensors(), executor);
    const auto used = model.tokens_per_expert();
    for (size_t layer = 0; layer < bias.rows(); ++layer) {
      optim::UpdateExpertBias({used.Row(layer), used.cols()}, rate,
                              {bias.Row(layer), bias.cols()});
    }
    optimizer.Step(lr_[step],
                   optim::ClipCoefficient(norm, TrainAttribute("max_norm")),
                   executor);

    EXPECT_NEAR(loss, losses[step], kLossLimit);
    EXPECT_NEAR(norm, norms[step], kNormLimit * norms[step]);
    for (size_t i = 0; i < bias.size(); ++i) {
      EXPECT_EQ(used.data()[i], counts[step * bias.size() + i])
          << "count " << i;
      EXPECT_NEAR(bias.data()[i], biases[step * bias.size() + i], kBiasLimit);
    }
    ExpectParameterNorms(step + 1);
  }

  model::ParameterSet initial(config_);
  ReadParameters(file_, "weights", initial);
  model::ParameterSet expected(config_);
  ReadParameters(file_, "train/final", expected);
  for (size_t i = 0; i < weights_.parameters().size(); ++i) {
    SCOPED_TRACE(weights_.parameters()[i].name);
    const auto trained = ValuesOf(weights_.parameters()[i]);
    const auto stored = ValuesOf(expected.parameters()[i]);
    const double update =
        RmsDifference(stored, ValuesOf(initial.parameters()[i]));
    EXPECT_LE(RmsDifference(trained, stored), kFinalRmsLimit * update);
    for (size_t j = 0; j < trained.size(); ++j) {
      ASSERT_NEAR(trained[j], stored[j], kFinalElementLimit) << "element " << j;
    }
  }
}

std::string FileName(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Files, ReferenceTrainingTest,
                         ::testing::Values("S1", "S2", "S3", "S4"), FileName);

}  // namespace
}  // namespace isoloss::test_support::reference_training_test
