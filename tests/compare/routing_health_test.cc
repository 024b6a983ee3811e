#include "isoloss/compare/routing_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/synthetic_runs.h"

namespace isoloss::compare::routing_health_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> WarningsOf(const Run& run) {
  return RoutingWarnings({&run}, 0.2);
}

TEST(RoutingWarnings, AreSilentForAHealthyRunAndForUnknownColumns) {
  compare::Run run = test_support::SyntheticRun(true, 1, 0.1);
  EXPECT_THAT(WarningsOf(run), IsEmpty());

  run.log.steps.expert_load_max_over_mean.clear();
  run.log.steps.dead_experts.clear();
  EXPECT_THAT(WarningsOf(run), IsEmpty());
}

TEST(RoutingWarnings, NameACollapseInTheFinalWindowOnly) {
  compare::Run run = test_support::SyntheticRun(true, 1, 0.1);
  auto& load = run.log.steps.expert_load_max_over_mean;
  load.front() = 100;
  EXPECT_THAT(WarningsOf(run), IsEmpty());

  std::fill(load.end() - 10, load.end(), kCollapsedLoad);
  EXPECT_THAT(WarningsOf(run), ElementsAre(HasSubstr("routing collapsed")));
}

TEST(RoutingWarnings, NameExpertsThatStayDead) {
  compare::Run run = test_support::SyntheticRun(true, 1, 0.1);
  auto& dead = run.log.steps.dead_experts;
  std::fill(dead.end() - 10, dead.end(), 2);
  EXPECT_THAT(WarningsOf(run), ElementsAre(HasSubstr("at least 2 experts")));

  dead.back() = 0;
  EXPECT_THAT(WarningsOf(run), IsEmpty());
}

}  // namespace
}  // namespace isoloss::compare::routing_health_test
