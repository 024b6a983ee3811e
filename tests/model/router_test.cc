#include "isoloss/model/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace isoloss::model {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

ModelConfig Config(size_t experts, size_t top_k, size_t groups = 0,
                   size_t limited = 0) {
  ModelConfig config;
  config.num_experts = experts;
  config.top_k = top_k;
  config.num_expert_groups = groups;
  config.num_limited_groups = limited;
  return config;
}

std::vector<int32_t> Select(const ModelConfig& config,
                            const std::vector<float>& scores,
                            std::vector<float> bias = {}) {
  bias.resize(scores.size(), 0.0f);
  std::vector<int32_t> ids(config.top_k);
  SelectExperts(config, scores, bias, ids);
  return ids;
}

TEST(SelectExperts, OrdersSlotsByFallingScoreAndLowerIndex) {
  EXPECT_THAT(Select(Config(5, 3), {0.2f, 0.5f, 0.1f, 0.5f, 0.2f}),
              ElementsAre(1, 3, 0));
}

TEST(SelectExperts, BiasChangesTheChoice) {
  EXPECT_THAT(Select(Config(4, 2), {0.9f, 0.8f, 0.2f, 0.1f}, {0, 0, 0, 1}),
              ElementsAre(3, 0));
}

TEST(SelectExperts, GroupsCountTheSumOfTheirTwoBest) {
  // Group 0 has the single best expert, group 1 the best pair.
  const std::vector<float> scores = {0.9f, 0.0f, 0.0f, 0.6f, 0.5f, 0.0f};

  EXPECT_THAT(Select(Config(6, 2, 2, 1), scores), ElementsAre(3, 4));
}

TEST(SelectExperts, LowerIndexWinsAmongEqualGroups) {
  const std::vector<float> scores = {0.1f, 0.1f, 0.3f, 0.2f, 0.2f, 0.3f};

  EXPECT_THAT(Select(Config(6, 2, 3, 1), scores), ElementsAre(2, 3));
}

TEST(SelectExperts, NegativeBiasedScoresDoNotLoseToOtherGroups) {
  // Masking other groups with 0 would prefer them to expert 1.
  const std::vector<float> bias = {0, -2, -3, -3};

  EXPECT_THAT(Select(Config(4, 2, 2, 1), {0.5f, 0.5f, 0.5f, 0.5f}, bias),
              ElementsAre(0, 1));
}

TEST(SelectExperts, NanScoresStillGiveDistinctExpertsOfTheKeptGroups) {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  EXPECT_THAT(Select(Config(4, 2), {nan, nan, nan, nan}), ElementsAre(0, 1));
  EXPECT_THAT(Select(Config(4, 2, 2, 1), {0.1f, nan, 0.3f, 0.2f}),
              UnorderedElementsAre(0, 1));
}

TEST(CombineWeights, AreUnbiasedNormalisedThenScaled) {
  ModelConfig config = Config(4, 2);
  config.route_scale = 2.5;
  const std::vector<float> scores = {0.25f, 0.0f, 0.75f, 0.5f};
  const std::vector<int32_t> ids = {2, 0};
  std::vector<float> weights(2);

  config.route_norm = true;
  CombineWeights(config, scores, ids, weights);
  EXPECT_THAT(weights, ElementsAre(0.75f * 2.5f, 0.25f * 2.5f));

  config.route_norm = false;
  config.route_scale = 16.0;
  CombineWeights(config, scores, ids, weights);
  EXPECT_THAT(weights, ElementsAre(12.0f, 4.0f));
}

TEST(CombineWeights, StayFiniteWhenAllScoresAreZero) {
  ModelConfig config = Config(2, 2);
  config.route_norm = true;
  const std::vector<float> scores = {0, 0};
  const std::vector<int32_t> ids = {0, 1};
  std::vector<float> weights(2);

  CombineWeights(config, scores, ids, weights);

  EXPECT_THAT(weights, ElementsAre(0.0f, 0.0f));
}

}  // namespace
}  // namespace isoloss::model
