#include "isoloss/treatments/model_work.h"

#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/estimators/speed_model.h"

namespace isoloss::treatments::model_work_test {
namespace {

using estimators::kMxfp8;
using estimators::ModelWork;
using estimators::ProductWork;

ModelWork Nano() {
  model::ModelConfig config;
  config.dim = 10;
  config.n_layers = 3;
  config.n_dense_layers = 1;
  config.q_lora_rank = 4;
  config.dense_hidden_dim = 20;
  config.moe_hidden_dim = 6;
  config.num_experts = 8;
  config.num_shared_experts = 2;
  config.top_k = 2;
  return WorkOf("nano", config, {.tokens = 100, .expert_ranks = 4});
}

TEST(ModelWork, OfShapesIsAHandCalculation) {
  const ModelWork work = Nano();

  EXPECT_EQ(work.moe_layers, 2U);
  const ProductWork& dense = *work.Find("feed_forward.w2", 1);
  EXPECT_EQ(dense.flops, 2 * 20 * 10);  // one layer
  EXPECT_EQ(dense.left_elements, 10);
  EXPECT_DOUBLE_EQ(dense.right_elements, 20 * 10 / 100.0);
  // 2 layers, 2 experts, forward and again; 2 matrices of a rank for 100
  // tokens.
  const ProductWork& expert = *work.Find("routed_experts.w1", 0);
  EXPECT_EQ(expert.flops, 2.0 * 2 * 2 * (2 * 10 * 6));
  EXPECT_EQ(expert.left_elements, 2.0 * 2 * 2 * 10);
  EXPECT_DOUBLE_EQ(expert.right_elements, 2 * 2 * (2 * 10 * 6 / 100.0));
  const ProductWork& wgrad = *work.Find("routed_experts.w1", 2);
  EXPECT_EQ(wgrad.left_elements, 2.0 * 2 * 6);
  EXPECT_EQ(wgrad.right_elements, 2.0 * 2 * 10);
  // Both matrices of the queries, 3 layers, 4 heads of 16 + 8.
  EXPECT_EQ(work.Find("attention.wq", 1)->flops,
            3 * (2.0 * 10 * 4 + 2.0 * 4 * 4 * 24));
  EXPECT_EQ(work.Find("moe.router.gate", 0), nullptr);
  EXPECT_NE(work.Find("router.gate", 0), nullptr);
}

double ShareOfAll(const ModelWork& work) {
  double sum = 0;
  for (const estimators::KindWork& kind : work.kinds) {
    for (size_t product = 0; product < estimators::kProductRoles; ++product) {
      sum += estimators::ShareOfModel(work, {kind.kind, product, kMxfp8}).flops;
    }
  }
  return sum;
}

TEST(ModelWork, SharesAddUp) {
  // Up to 45 terms of at most 1, each rounded: 45 * 1.1e-16.
  EXPECT_NEAR(ShareOfAll(Nano()), 1, 5e-15);
  EXPECT_NEAR(ShareOfAll(WorkOf16b()), 1, 5e-15);
  EXPECT_NEAR(ShareOfAll(WorkOf671b()), 1, 5e-15);
}

// DeepSeek-V3 activates 37 B of its parameters for a token, a figure of two
// digits that counts the embedding's 129,280 x 7168, which no product reads.
// Four passes of 2 operations each: forward, again, and two backward.
TEST(ModelWork, Of671bIsThatOfItsActivatedParameters) {
  const double activated = WorkOf671b().Flops() / 8 + 129280.0 * 7168;

  EXPECT_NEAR(activated, 37e9, 0.6e9);
}

// The figures of docs/studies.md. A change of the model's assumptions changes
// them.
TEST(SpeedModelOf671b, PredictsTwoPublishedFiguresFromOne) {
  const estimators::SpeedModel model(WorkOf671b(), estimators::kB200,
                                     estimators::SpeedAssumptions());

  const auto tries = model.Tries();

  EXPECT_NEAR(tries[0].predicted, 651, 1e-9);
  EXPECT_NEAR(tries[1].predicted, 828, 0.5);
  EXPECT_NEAR(tries[2].predicted, 852, 0.5);
  EXPECT_NEAR(tries[1].predicted_one_rank, 988, 0.5);
  // 58 layers, 8 experts, 3 of 4 nodes others, 7168 values of 2 bytes, 6 times.
  EXPECT_DOUBLE_EQ(model.ExchangeSeconds(estimators::Dispatch::kStandard),
                   58 * 8 * 0.75 * 7168 * 2 * 6 / 50e9);
  EXPECT_NEAR(model.RestSeconds(), 0.746e-3, 0.001e-3);
}

// Llama 4 Scout leaves wk and wv in high precision because they are too small
// to gain; the down projection of keys and values is what they are here.
TEST(SpeedModelOf671b, GainsNothingAtTheNarrowestSite) {
  const estimators::SpeedModel model(WorkOf671b(), estimators::kB200,
                                     estimators::SpeedAssumptions());

  EXPECT_LT(model.SavedSeconds({"attention.wkv_a", 0, kMxfp8}), 0);
  EXPECT_GT(model.SavedSeconds({"attention.wo", 0, kMxfp8}), 0);
  EXPECT_GT(model.SavedSeconds({"routed_experts.w2", 2, kMxfp8}), 0);
}

}  // namespace
}  // namespace isoloss::treatments::model_work_test
