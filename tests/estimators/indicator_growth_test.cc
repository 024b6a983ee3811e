#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "isoloss/estimators/growth.h"

namespace isoloss::estimators::indicator_growth_test {
namespace {

TEST(Growth, IsThatOfAnExponential) {
  // 3 * 2^(step / 20), in doublings: a line, but for a rounding of log2 each.
  std::vector<int64_t> steps;
  std::vector<double> doublings;
  for (int64_t step = 5; step <= 100; step += 5) {
    steps.push_back(step);
    doublings.push_back(
        std::log2(3 * std::exp2(static_cast<double>(step) / 20)));
  }

  const std::optional<Growth> growth = FitGrowth(steps, doublings);

  ASSERT_TRUE(growth);
  EXPECT_NEAR(1 / growth->rate, 20, 1e-11);
  EXPECT_TRUE(growth->IsSettled());
  EXPECT_EQ(growth->count, 20);
}

TEST(Growth, HasTheIntervalOfTheLine) {
  // By hand: slope 3 / 5; residuals -0.1, 0.3, -0.3, 0.1, so that its variance
  // is 0.2 / 2 / 5 = 0.02; t of 2 degrees at 97.5 % is 4.302653.
  const std::optional<Growth> growth = FitGrowth(
      std::vector<int64_t>{0, 1, 2, 3}, std::vector<double>{0, 1, 1, 2});

  ASSERT_TRUE(growth);
  const double reach = 4.302653 * std::sqrt(0.02);
  EXPECT_NEAR(growth->rate, 0.6, 1e-14);
  EXPECT_NEAR(growth->lower, 0.6 - reach, 1e-6);
  EXPECT_NEAR(growth->upper, 0.6 + reach, 1e-6);
  EXPECT_FALSE(growth->IsSettled());
}

TEST(Growth, TakesThreePointsThatAreFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<int64_t> steps = {1, 2, 3, 4, 5};

  EXPECT_FALSE(
      FitGrowth(steps, std::vector{-inf, 1.0, std::nan(""), 2.0, inf}));
  const std::optional<Growth> growth =
      FitGrowth(steps, std::vector{-inf, 1.0, std::nan(""), 2.0, 2.5});
  ASSERT_TRUE(growth);
  EXPECT_NEAR(growth->rate, 0.5, 1e-14);
}

TEST(Growth, OfRunsIsTheIntervalOfTheirMean) {
  // Mean 2, standard deviation 1, t of 2 degrees: 4.302653 / sqrt(3).
  const std::optional<Growth> growth = MeanGrowth(std::vector<double>{1, 2, 3});

  ASSERT_TRUE(growth);
  EXPECT_DOUBLE_EQ(growth->rate, 2);
  EXPECT_NEAR(growth->upper, 2 + 4.302653 / std::sqrt(3.0), 1e-6);
  EXPECT_FALSE(MeanGrowth({}));
  EXPECT_FALSE(MeanGrowth(std::vector<double>{1})->IsSettled());
}

}  // namespace
}  // namespace isoloss::estimators::indicator_growth_test
