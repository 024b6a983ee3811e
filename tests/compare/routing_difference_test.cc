#include "isoloss/compare/routing_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isoloss::compare::routing_difference_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Two steps, two layers, two tokens, two slots.
runlog::MoeColumns Moe() {
  runlog::MoeColumns moe;
  moe.step = {1, 2};
  moe.layers = 2;
  moe.experts = 8;
  moe.tokens = 2;
  moe.top_k = 2;
  moe.expert_ids = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
  moe.routing_digest = {1, 2, 3, 4};
  return moe;
}

TEST(CompareRouting, CountsChoicesThatTheOtherTokenSlotsDoNotHave) {
  auto b = Moe();
  b.expert_ids[1] = 7;  // step 1, layer 0, token 0: {0, 7}
  b.expert_ids[6] = 7;  // step 1, layer 1, token 1: {7, 7}, both among A's
  b.expert_ids[12] = 6;
  b.expert_ids[13] = 7;  // step 2, layer 1, token 0: {6, 7} for {4, 5}

  const auto routing = CompareRouting(Moe(), b);

  ASSERT_TRUE(routing.has_value());
  EXPECT_THAT(routing->flips, ElementsAre(1, 0, 0, 2));
  EXPECT_EQ(routing->choices, 4);
  EXPECT_EQ(routing->equal, 1);
}

TEST(CompareRouting, OrderOfSlotsIsNoFlipButNoEqualityEither) {
  auto b = Moe();
  std::swap(b.expert_ids[0], b.expert_ids[1]);

  const auto routing = CompareRouting(Moe(), b);

  EXPECT_THAT(routing->flips, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(routing->equal, 3);
}

// A search of each choice among all others would take 10^12 steps.
TEST(CompareRouting, TakesNoPairOfSlotsOfAToken) {
  runlog::MoeColumns a;
  a.step = {1};
  a.layers = 1;
  a.tokens = 1;
  a.top_k = int64_t{1} << 21;
  a.experts = a.top_k + 1;
  for (int32_t i = 0; i < a.top_k; ++i) a.expert_ids.push_back(i);
  runlog::MoeColumns b = a;
  for (int32_t& expert : b.expert_ids) ++expert;

  EXPECT_THAT(CompareRouting(a, b)->flips, ElementsAre(1));
}

TEST(CompareRouting, ADroppedSlotIsNoChoice) {
  auto b = Moe();
  b.expert_ids[0] = -1;

  EXPECT_THAT(CompareRouting(Moe(), b)->flips, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(CompareRouting(b, Moe())->flips, ElementsAre(1, 0, 0, 0));
}

TEST(CompareRouting, FallsBackToDigestsOfCommonSteps) {
  auto b = Moe();
  b.expert_ids.clear();
  b.step = {2, 3};
  b.routing_digest = {3, 5, 6, 7};

  const auto routing = CompareRouting(Moe(), b);

  EXPECT_THAT(routing->step, ElementsAre(2));
  EXPECT_THAT(routing->flips, IsEmpty());
  EXPECT_EQ(routing->equal, 1);
}

TEST(CompareRouting, IsEmptyWithoutCommonStepsLayersOrColumns) {
  auto other_steps = Moe();
  other_steps.step = {3, 4};
  auto other_layers = Moe();
  other_layers.layers = 1;
  auto nothing = Moe();
  nothing.expert_ids.clear();
  nothing.routing_digest.clear();

  EXPECT_FALSE(CompareRouting(Moe(), other_steps).has_value());
  EXPECT_FALSE(CompareRouting(Moe(), other_layers).has_value());
  EXPECT_FALSE(CompareRouting(Moe(), nothing).has_value());
  EXPECT_FALSE(CompareRouting({}, {}).has_value());
}

}  // namespace
}  // namespace isoloss::compare::routing_difference_test
