#include "isoloss/expert_parallel/routing_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace isoloss::expert_parallel::routing_plan_test {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Flat(MatrixView<const int32_t> m) {
  return {m.data(), m.data() + m.rows() * m.cols()};
}

TEST(RoutingPlan, OrdersRowsByExpertThenTokenThenSlot) {
  const std::vector<int32_t> ids = {2, 0,   // token 0
                                    0, 3,   // token 1
                                    3, 2};  // token 2
  RoutingPlan plan;

  plan.Build({ids.data(), 3, 2}, 4);

  EXPECT_THAT(plan.expert_begins(), ElementsAre(0, 2, 2, 4, 6));
  EXPECT_THAT(Flat(plan.token_of_row()), ElementsAre(0, 1, 0, 2, 1, 2));
  EXPECT_THAT(Flat(plan.row_of_slot()), ElementsAre(2, 0, 1, 4, 5, 3));
  EXPECT_EQ(plan.TokensOf(0), 2);
  EXPECT_EQ(plan.TokensOf(1), 0) << "an expert may get no token";
}

TEST(RoutingPlan, ForgetsThePreviousBatch) {
  const std::vector<int32_t> large = {0, 1, 1, 0, 0, 1, 1, 0};
  const std::vector<int32_t> small = {1};
  RoutingPlan plan;
  plan.Build({large.data(), 4, 2}, 2);

  plan.Build({small.data(), 1, 1}, 3);

  EXPECT_THAT(plan.expert_begins(), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(Flat(plan.token_of_row()), ElementsAre(0));
}

TEST(RoutingPlanDeathTest, RefusesATokenThatNamesAnExpertTwice) {
  const std::vector<int32_t> ids = {0, 1, 2, 2};
  RoutingPlan plan;

  EXPECT_DEATH(plan.Build({ids.data(), 2, 2}, 4), "assertion");
}

TEST(RoutingPlanDeathTest, RefusesAnExpertThatDoesNotExist) {
  const std::vector<int32_t> ids = {0, 4};
  RoutingPlan plan;

  EXPECT_DEATH(plan.Build({ids.data(), 1, 2}, 4), "assertion");
}

}  // namespace
}  // namespace isoloss::expert_parallel::routing_plan_test
