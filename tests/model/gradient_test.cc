// Gradients against central differences, for combinations of options and
// exchanges that no reference file has.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/small_model.h"

namespace isoloss::model::gradient_test {
namespace {

using expert_parallel::Algorithm;
using expert_parallel::CombineOrder;
using expert_parallel::WeightSite;
using test_support::SmallBatch;
using test_support::SmallConfig;
using test_support::SmallModel;

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

/// Biases fix the choice of experts, which is not differentiable.
void FixExperts(SmallModel& model, const ModelConfig& config,
                const std::vector<size_t>& experts) {
  Matrix<float> bias(config.n_moe_layers(), config.num_experts);
  for (size_t layer = 0; layer < bias.rows(); ++layer) {
    for (const size_t expert : experts) bias(layer, expert) = 5;
  }
  model.transformer.LoadExpertBias(bias.view());
}

/// Gradients of the model's last step against central differences of its loss
/// along each of them.
void ExpectSlopesAlongGradients(SmallModel& model, const SmallBatch& batch) {
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

class GradientTest : public ::testing::TestWithParam<Variant> {};

TEST_P(GradientTest, MatchesCentralDifferencesAlongEveryParametersGradient) {
  ModelConfig config = SmallConfig();
  GetParam().change(config);
  SmallBatch batch(config, {20, 70});
  SmallModel model(config);
  FixExperts(model, config, {0, 1});

  model.Step(batch);

  ExpectSlopesAlongGradients(model, batch);
}

INSTANTIATE_TEST_SUITE_P(Variants, GradientTest, ::testing::ValuesIn(kVariants),
                         [](const ::testing::TestParamInfo<Variant>& variant) {
                           return std::string(variant.param.name);
                         });

/// An exchange between four ranks on two nodes.
struct RankedVariant {
  const char* name;
  Algorithm algorithm;
  WeightSite site;
  CombineOrder order = CombineOrder::kRank;
  size_t padding = 1;
};

constexpr RankedVariant kRankedVariants[] = {
    {"FlatSource", Algorithm::kFlat, WeightSite::kSource},
    {"FlatExpertOut", Algorithm::kFlat, WeightSite::kExpertOut},
    {"FlatBeforeFc2", Algorithm::kFlat, WeightSite::kBeforeFc2},
    {"FlatBeforeFc2Padded", Algorithm::kFlat, WeightSite::kBeforeFc2,
     CombineOrder::kRank, 8},
    {"RankExpertOut", Algorithm::kRank, WeightSite::kExpertOut},
    {"RankBeforeFc2", Algorithm::kRank, WeightSite::kBeforeFc2,
     CombineOrder::kLastSlot},
    {"NodeExpertOut", Algorithm::kNode, WeightSite::kExpertOut,
     CombineOrder::kLastSlot},
    {"NodeBeforeFc2", Algorithm::kNode, WeightSite::kBeforeFc2},
    {"TitanExpertOut", Algorithm::kTitanBf16, WeightSite::kExpertOut},
    {"TitanBeforeFc2", Algorithm::kTitanBf16, WeightSite::kBeforeFc2},
};

class RankedGradientTest : public ::testing::TestWithParam<RankedVariant> {};

TEST_P(RankedGradientTest, MatchesCentralDifferencesBetweenRanks) {
  const RankedVariant& variant = GetParam();
  ModelConfig config = SmallConfig();
  config.num_experts = 8;
  config.top_k = 4;
  SmallBatch batch(config, {20, 70});
  SmallModel model(config, {.topology = {.experts = config.num_experts,
                                         .ranks = 4,
                                         .replicas = 1,
                                         .ranks_per_node = 2},
                            .options = {.algorithm = variant.algorithm,
                                        .weight_site = variant.site,
                                        .order = variant.order,
                                        .padding = variant.padding}});
  // Two experts of one rank, one of its neighbour, one of the other node.
  FixExperts(model, config, {0, 1, 3, 6});

  model.Step(batch);

  ExpectSlopesAlongGradients(model, batch);
}

INSTANTIATE_TEST_SUITE_P(Exchanges, RankedGradientTest,
                         ::testing::ValuesIn(kRankedVariants),
                         [](const auto& variant) {
                           return std::string(variant.param.name);
                         });

}  // namespace
}  // namespace isoloss::model::gradient_test
