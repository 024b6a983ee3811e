#include "isoloss/step_checks/router_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "step_checks/recorded_step.h"

namespace isoloss::step_checks::router_check_test {
namespace {

using isoloss::test_support::ExpectFound;
using isoloss::test_support::ExpectNoOthers;
using isoloss::test_support::OneRank;
using isoloss::test_support::RecordedStep;
using isoloss::test_support::SmallConfig;
using ::testing::ElementsAre;

const std::string kRouter = "layers.1.moe.router";

model::ModelConfig GroupedSoftmaxConfig() {
  model::ModelConfig config = SmallConfig();
  config.num_experts = 8;
  config.num_expert_groups = 4;
  config.num_limited_groups = 2;
  config.top_k = 3;
  config.score_function = model::ScoreFunction::kSoftmax;
  config.route_norm = false;
  return config;
}

/// Routers start without bias.
std::function<void(ReportSink&)> CheckOf(
    const RecordedStep& step,
    model::RoutingMode mode = model::RoutingMode::kLearned) {
  return [&step, mode](ReportSink& sink) {
    const std::vector<float> bias(step.config.num_experts, 0.0f);
    CheckRouter(step.record, step.config, 1, {.mode = mode, .bias = bias},
                step.tokens_per_expert, sink);
  };
}

TEST(RouterCheck, FindsNothingInCorrectSteps) {
  for (const char* recipe : {"bf16", "mxfp8_rceil", "fp32"}) {
    for (const auto& config : {SmallConfig(), GroupedSoftmaxConfig()}) {
      const RecordedStep step(config, OneRank(config), recipe);

      ExpectNoOthers(CheckOf(step), recipe);
    }
  }
}

TEST(RouterCheck, FindsAChangeOfEveryTensor) {
  for (const auto& config : {SmallConfig(), GroupedSoftmaxConfig()}) {
    RecordedStep step(config, OneRank(config), "bf16");
    const auto id = static_cast<size_t>(step.record.ExpertIds(kRouter)(20, 0));

    ExpectFound(step.record, kRouter + ".gate_output", 20, 2, CheckOf(step));
    ExpectFound(step.record, kRouter + ".scores_output", 20, id, CheckOf(step));
    ExpectFound(step.record, kRouter + ".topk_weights_output", 20, 1,
                CheckOf(step));
    ExpectFound(step.record, kRouter + ".topk_weights_gradient", 20, 1,
                CheckOf(step));
    ExpectFound(step.record, kRouter + ".gate_gradient", 20, 3, CheckOf(step));
  }
}

TEST(RouterCheck, CountsARoutingRowOfTheMoeLayer) {
  const RecordedStep step(SmallConfig(), OneRank(SmallConfig()), "bf16");
  ReportSink sink;

  CheckOf(step)(sink);

  ASSERT_EQ(sink.routing().size(), 1u);
  EXPECT_EQ(sink.routing()[0].layer, 0);
  EXPECT_EQ(sink.routing()[0].tokens, 128);
}

TEST(RouterCheck, FindsAnotherBias) {
  const RecordedStep step(SmallConfig(), OneRank(SmallConfig()), "bf16");
  std::vector<float> bias(step.config.num_experts, 0.0f);
  bias[0] = 0.5f;
  ReportSink sink;

  CheckRouter(step.record, step.config, 1, {.bias = bias},
              step.tokens_per_expert, sink);

  EXPECT_GT(sink.routing()[0].other, 0);
}

TEST(RouterCheck, FindsWrongCounts) {
  RecordedStep step(SmallConfig(), OneRank(SmallConfig()), "bf16");
  --step.tokens_per_expert[2];
  ReportSink sink;

  CheckOf(step)(sink);

  EXPECT_EQ(sink.comparisons().at(kRouter + "_tokens_per_expert").Row().other,
            1);
}

TEST(RouterCheck, FindsARouterThatChoseInSpiteOfForcedBalance) {
  const RecordedStep step(SmallConfig(), OneRank(SmallConfig()), "bf16");
  ReportSink sink;

  CheckOf(step, model::RoutingMode::kForcedBalance)(sink);

  EXPECT_GT(sink.routing()[0].other, 0);
}

TEST(RouterCheck, FindsATokenThatLeftItsReplayedExpert) {
  const RecordedStep step(SmallConfig(), OneRank(SmallConfig()), "bf16");
  const MatrixView<const int32_t> chosen = step.record.ExpertIds(kRouter);
  Matrix<int32_t> ids(chosen.rows(), chosen.cols());
  for (size_t t = 0; t < ids.rows(); ++t) {
    std::copy_n(chosen.Row(t), ids.cols(), ids.Row(t));
  }
  const auto others = [&] {
    ReportSink sink;
    CheckRouter(step.record, step.config, 1,
                {.mode = model::RoutingMode::kReplay, .replayed = ids.view()},
                step.tokens_per_expert, sink);
    return sink.routing()[0].other;
  };
  EXPECT_EQ(others(), 0);

  std::swap(ids(20, 0), ids(20, 1));
  EXPECT_EQ(others(), 1);
}

// Eight experts; powers of two, so that sums are exact unless said otherwise.
class ChoiceTest : public ::testing::Test {
 protected:
  ChoiceTest() {
    config_.num_experts = 8;
    config_.top_k = 2;
  }
  ChoiceClass Classify(std::vector<int32_t> ids) const {
    return ClassifyChoice(config_, scores_, bias_, ids);
  }

  model::ModelConfig config_;
  std::vector<float> scores_ = {0.5f, 0.25f, 0.5f,  0.125f,
                                0.0f, 0.25f, 0.25f, 0.0f};
  std::vector<float> bias_ = std::vector<float>(8, 0.0f);
};

TEST_F(ChoiceTest, LowerIndexWinsExactTies) {
  EXPECT_THAT(ChooseExperts(config_, scores_, bias_), ElementsAre(0, 2));
  EXPECT_EQ(Classify({0, 2}), ChoiceClass::kEqual);
  EXPECT_EQ(Classify({2, 0}), ChoiceClass::kOther);
}

TEST_F(ChoiceTest, BiasTakesPart) {
  bias_[7] = 1.0f;

  EXPECT_EQ(Classify({7, 0}), ChoiceClass::kEqual);
  EXPECT_EQ(Classify({0, 2}), ChoiceClass::kOther);
}

TEST_F(ChoiceTest, WhatRoundingOfTheSumHidesIsAFlip) {
  // 0.5 + 2^-26 rounds to 0.5 in FP32: a tie there, but expert 2 is better.
  bias_[2] = 0x1p-26f;

  EXPECT_EQ(Classify({0, 2}), ChoiceClass::kEqual);
  EXPECT_EQ(Classify({2, 0}), ChoiceClass::kFlip);
}

TEST_F(ChoiceTest, AGapAboveRoundingIsNoFlip) {
  // Two spacings of FP32 above 0.5; each sum is off by half of one at most.
  scores_[2] = 0.5f + 0x1p-22f;

  EXPECT_EQ(Classify({2, 0}), ChoiceClass::kEqual);
  EXPECT_EQ(Classify({0, 2}), ChoiceClass::kOther);
}

TEST_F(ChoiceTest, RepeatedOrImpossibleExpertsAreOthers) {
  EXPECT_EQ(Classify({0, 0}), ChoiceClass::kOther);
  EXPECT_EQ(Classify({0, 8}), ChoiceClass::kOther);
  EXPECT_EQ(Classify({0, -1}), ChoiceClass::kOther);
}

TEST_F(ChoiceTest, GroupsAreLimitedByTheSumOfTheirTwoBest) {
  config_.num_expert_groups = 4;
  config_.num_limited_groups = 1;
  scores_ = {0.5f, 0.0f, 0.375f, 0.25f, 0.0f, 0.0f, 0.375f, 0.25f};

  // Groups count 0.5, 0.625, 0, 0.625: the first of the best.
  EXPECT_EQ(Classify({2, 3}), ChoiceClass::kEqual);
  EXPECT_EQ(Classify({6, 7}), ChoiceClass::kOther);
  EXPECT_EQ(Classify({0, 2}), ChoiceClass::kOther);
}

TEST_F(ChoiceTest, AGroupWithinRoundingIsAFlip) {
  config_.num_expert_groups = 4;
  config_.num_limited_groups = 1;
  // The second group's sum is 2^-26 above the fourth's, lost in FP32.
  scores_ = {0.5f, 0.0f, 0.375f, 0.25f + 0x1p-25f, 0.0f, 0.0f, 0.375f, 0.25f};

  EXPECT_EQ(Classify({2, 3}), ChoiceClass::kEqual);
  EXPECT_EQ(Classify({6, 7}), ChoiceClass::kFlip);
}

}  // namespace
}  // namespace isoloss::step_checks::router_check_test
