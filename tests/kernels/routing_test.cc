#include "isoloss/kernels/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::kernels::routing_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<int32_t> Select(const RouterRule& rule, size_t top_k,
                            const std::vector<float>& scores,
                            std::vector<float> bias = {}) {
  bias.resize(scores.size(), 0.0f);
  std::vector<int32_t> ids(top_k);
  Executor executor(1);
  SelectExperts(rule, {scores.data(), 1, scores.size()}, bias,
                {ids.data(), 1, top_k}, executor);
  return ids;
}

TEST(SelectExperts, OrdersSlotsByFallingScoreAndLowerIndex) {
  EXPECT_THAT(Select({}, 3, {0.2f, 0.5f, 0.1f, 0.5f, 0.2f}),
              ElementsAre(1, 3, 0));
}

TEST(SelectExperts, BiasChangesTheChoice) {
  EXPECT_THAT(Select({}, 2, {0.9f, 0.8f, 0.2f, 0.1f}, {0, 0, 0, 1}),
              ElementsAre(3, 0));
}

TEST(SelectExperts, GroupsCountTheSumOfTheirTwoBest) {
  // Group 0 has the single best expert, group 1 the best pair.
  const std::vector<float> scores = {0.9f, 0.0f, 0.0f, 0.6f, 0.5f, 0.0f};

  EXPECT_THAT(Select({.groups = 2, .limited_groups = 1}, 2, scores),
              ElementsAre(3, 4));
}

TEST(SelectExperts, LowerIndexWinsAmongEqualGroups) {
  const std::vector<float> scores = {0.1f, 0.1f, 0.3f, 0.2f, 0.2f, 0.3f};

  EXPECT_THAT(Select({.groups = 3, .limited_groups = 1}, 2, scores),
              ElementsAre(2, 3));
}

TEST(SelectExperts, NegativeBiasedScoresDoNotLoseToOtherGroups) {
  // Masking other groups with 0 would prefer them to expert 1.
  const std::vector<float> bias = {0, -2, -3, -3};

  EXPECT_THAT(Select({.groups = 2, .limited_groups = 1}, 2,
                     {0.5f, 0.5f, 0.5f, 0.5f}, bias),
              ElementsAre(0, 1));
}

TEST(SelectExperts, NanScoresStillGiveDistinctExpertsOfTheKeptGroups) {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  EXPECT_THAT(Select({}, 2, {nan, nan, nan, nan}), ElementsAre(0, 1));
  EXPECT_THAT(
      Select({.groups = 2, .limited_groups = 1}, 2, {0.1f, nan, 0.3f, 0.2f}),
      UnorderedElementsAre(0, 1));
}

TEST(CombineWeights, AreUnbiasedNormalisedThenScaled) {
  RouterRule rule = {.scale = 2.5f};
  const std::vector<float> scores = {0.25f, 0.0f, 0.75f, 0.5f};
  const std::vector<int32_t> ids = {2, 0};
  std::vector<float> weights(2);

  scalar::CombineWeights(rule, scores, ids, weights);
  EXPECT_THAT(weights, ElementsAre(0.75f * 2.5f, 0.25f * 2.5f));

  rule = {.normalises = false, .scale = 16.0f};
  scalar::CombineWeights(rule, scores, ids, weights);
  EXPECT_THAT(weights, ElementsAre(12.0f, 4.0f));
}

TEST(CombineWeights, StayFiniteWhenAllScoresAreZero) {
  const std::vector<float> scores = {0, 0};
  const std::vector<int32_t> ids = {0, 1};
  std::vector<float> weights(2);

  scalar::CombineWeights({.scale = 2.5f}, scores, ids, weights);

  EXPECT_THAT(weights, ElementsAre(0.0f, 0.0f));
}

TEST(Routing, OfManyTokensIsThatOfEach) {
  constexpr size_t kTokens = 150;
  constexpr size_t kExperts = 12;
  constexpr size_t kSlots = 3;
  const CounterRng rng(5, StreamId("routing"));
  Matrix<float> scores(kTokens, kExperts);
  for (size_t i = 0; i < scores.size(); ++i) {
    // 8 values: ties are frequent.
    scores.data()[i] = static_cast<float>(rng.Below(i, 8)) / 8;
  }
  const std::vector<float> bias(kExperts, 0.0f);
  for (const bool softmax : {false, true}) {
    const RouterRule rule = {
        .groups = 4, .limited_groups = 2, .scale = 2.5f, .softmax = softmax};
    Executor executor(3);
    Matrix<int32_t> ids(kTokens, kSlots);
    Matrix<float> weights(kTokens, kSlots);
    Matrix<float> dlogits(kTokens, kExperts);
    SelectExperts(rule, scores.view(), bias, ids.view(), executor);
    CombineWeights(rule, scores.view(), ids.view(), weights.view(), executor);
    RouterScoreBackward(rule, scores.view(), ids.view(), weights.view(),
                        dlogits.view(), executor);

    for (size_t t = 0; t < kTokens; ++t) {
      const std::span<const float> of_token(scores.Row(t), kExperts);
      std::vector<int32_t> token_ids(kSlots);
      std::vector<float> token_weights(kSlots);
      std::vector<float> token_dlogits(kExperts);
      scalar::SelectExperts(rule, of_token, bias, token_ids);
      scalar::CombineWeights(rule, of_token, token_ids, token_weights);
      scalar::RouterScoreBackward(rule, of_token, token_ids, token_weights,
                                  token_dlogits);
      ASSERT_TRUE(std::ranges::equal(token_ids, std::span(ids.Row(t), kSlots)));
      ASSERT_TRUE(
          std::ranges::equal(token_weights, std::span(weights.Row(t), kSlots)));
      ASSERT_TRUE(std::ranges::equal(token_dlogits,
                                     std::span(dlogits.Row(t), kExperts)));
    }
  }
}

}  // namespace
}  // namespace isoloss::kernels::routing_test
