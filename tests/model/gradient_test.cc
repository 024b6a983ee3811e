// Gradients against central differences, for combinations of options that no
// reference file has.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/small_model.h"

namespace isoloss::model {
namespace {

using testing::SmallBatch;
using testing::SmallConfig;
using testing::SmallModel;

struct Variant {
  const char* name;
  void (*change)(ModelConfig&);
};

constexpr Variant kVariants[] = {
    {"NoSharedExperts", [](ModelConfig& c) { c.num_shared_experts = 0; }},
    {"AllLayersMoe", [](ModelConfig& c) { c.n_dense_layers = 0; }},
    {"AllLayersDense", [](ModelConfig& c) { c.n_dense_layers = 2; }},
    {"SoftmaxNormalised",
     [](ModelConfig& c) { c.score_function = ScoreFunction::kSoftmax; }},
    {"SigmoidUnnormalisedTied",
     [](ModelConfig& c) {
       c.route_norm = false;
       c.route_scale = 1.0;
       c.tied_embeddings = true;
     }},
    {"GroupsWithoutQueryLora",
     [](ModelConfig& c) {
       c.num_expert_groups = 3;
       c.num_limited_groups = 1;
       c.q_lora_rank = 0;
     }},
    {"AllExpertsOfOneGroup",
     [](ModelConfig& c) {
       c.num_expert_groups = 1;
       c.num_limited_groups = 1;
       c.top_k = c.num_experts;
     }},
};

class GradientTest : public ::testing::TestWithParam<Variant> {};

TEST_P(GradientTest, MatchesCentralDifferencesAlongEveryParametersGradient) {
  ModelConfig config = SmallConfig();
  GetParam().change(config);
  SmallBatch batch(config, {20, 70});
  SmallModel model(config);
  // Biases fix the choice of experts, which is not differentiable.
  Matrix<float> bias(config.n_moe_layers(), config.num_experts);
  for (size_t layer = 0; layer < bias.rows(); ++layer) {
    bias(layer, 1) = bias(layer, 0) = 5;
  }
  model.transformer.LoadExpertBias(bias.view());
  model.Step(batch);

  for (size_t i = 0; i < model.weights.parameters().size(); ++i) {
    Matrix<float>& weight = model.weights.parameters()[i].values;
    const Matrix<float>& gradient = model.gradients.parameters()[i].values;
    SCOPED_TRACE(model.weights.parameters()[i].name);
    double gradient_norm = 0.0;
    double weight_norm = 0.0;
    for (size_t j = 0; j < weight.size(); ++j) {
      gradient_norm += std::pow(static_cast<double>(gradient.data()[j]), 2);
      weight_norm += std::pow(static_cast<double>(weight.data()[j]), 2);
    }
    gradient_norm = std::sqrt(gradient_norm);
    ASSERT_GT(gradient_norm, 0.0);

    // Step along the gradient by 1 and 2 % of the tensor's norm, both ways.
    const double step = 0.01 * std::sqrt(weight_norm);
    Matrix<float> original;
    original.CopyFrom(weight);
    const auto loss_at = [&](double signed_step) {
      const double factor = signed_step / gradient_norm;
      for (size_t j = 0; j < weight.size(); ++j) {
        weight.data()[j] = static_cast<float>(
            static_cast<double>(original.data()[j]) +
            factor * static_cast<double>(gradient.data()[j]));
      }
      model.Load();
      return model.transformer.Forward(batch.view());
    };
    const auto slope_over = [&](double h) {
      return (loss_at(h) - loss_at(-h)) / (2 * h);
    };
    const double slope = (4 * slope_over(step) - slope_over(2 * step)) / 3;
    weight.CopyFrom(original);

    // Richardson's step removes the third-order term; what is left is of the
    // order of (2 %)^4 times the ratio of the fifth to the first derivative,
    // measured below 1e-3 here. The losses' own FP32 noise, about 1e-6, is
    // divided by the step.
    EXPECT_NEAR(slope, gradient_norm, 3e-3 * gradient_norm + 3e-6 / step);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, GradientTest, ::testing::ValuesIn(kVariants),
                         [](const ::testing::TestParamInfo<Variant>& variant) {
                           return std::string(variant.param.name);
                         });

}  // namespace
}  // namespace isoloss::model
