// tests/gate/tuning_test.cc has what a verdict makes of these defects.
#include "isoloss/compare/swept_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace isoloss::compare::swept_rate_test {
namespace {

using ::testing::HasSubstr;

std::string DefectOf(const std::vector<double>& rates,
                     const std::vector<double>& losses, size_t seeds = 2) {
  const auto optimum = stats::FindRateOptimum(rates, losses);
  return optimum ? SweepDefect(rates, losses, seeds, *optimum) : "none";
}

TEST(IsNearRate, ReachesAFactorOfOneAndAHalf) {
  for (const double near : {1.0, 1.5, 1 / 1.5}) {
    EXPECT_TRUE(IsNearRate(near, 1)) << near;
  }
  for (const double far : {1.51, 1 / 1.51}) {
    EXPECT_FALSE(IsNearRate(far, 1)) << far;
  }
}

TEST(SweepDefect, IsNoneBetweenNearNeighbours) {
  const double diverged = std::numeric_limits<double>::infinity();
  EXPECT_EQ(DefectOf({1, 2, 4}, {3, 2, 3}), "");
  EXPECT_EQ(DefectOf({1, 2, 4}, {3, 2, diverged}), "");
}

TEST(SweepDefect, NamesWhatIsLacking) {
  const double diverged = std::numeric_limits<double>::infinity();
  EXPECT_THAT(DefectOf({1, 2, 4}, {3, 2, 3}, 1), HasSubstr("has 1 seed of"));
  EXPECT_THAT(DefectOf({1, 2, 4}, {1, 2, 3}), HasSubstr("the outermost"));
  EXPECT_THAT(DefectOf({1, 3, 6}, {3, 2, 3}), HasSubstr("a factor 2.1"));
  EXPECT_THAT(DefectOf({1, 2, 4}, {diverged, 2, 3}),
              HasSubstr("the lower must train"));
}

}  // namespace
}  // namespace isoloss::compare::swept_rate_test
