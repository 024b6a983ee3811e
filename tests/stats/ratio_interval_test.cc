#include "isoloss/stats/ratio_interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/student_t.h"
#include "simulation.h"

namespace isoloss::stats::ratio_interval_test {
namespace {

// At an end r the t test of y - r x is on the verge of rejecting: |t| of its
// mean is the quantile. Rounding is amplified by the square root, 1e-8 at most.
TEST(FiellerInterval, EndsWhereTheTestOfTheDifferenceDoes) {
  const std::vector<double> y = {0.9, 1.4, 1.1, 1.3, 0.7};
  const std::vector<double> x = {2.1, 2.9, 2.2, 2.4, 1.9};
  const auto interval = FiellerInterval(y, x, 0.05).value();

  for (const double r : {interval.lower, interval.upper}) {
    std::vector<double> rest;
    for (size_t i = 0; i < y.size(); ++i) rest.push_back(y[i] - r * x[i]);
    const Summary summary = Summarize(rest);
    EXPECT_NEAR(std::fabs(summary.mean) / summary.sd * std::sqrt(5.0),
                StudentTQuantile(0.95, 4), 1e-7);
  }
  EXPECT_LT(interval.lower, 5.4 / 11.5);
  EXPECT_GT(interval.upper, 5.4 / 11.5);
}

// A divisor without spread only scales the t interval of the dividend.
TEST(FiellerInterval, OfAConstantDivisorIsTheTInterval) {
  const std::vector<double> y = {0.5, -0.25, 1.0};
  const auto scaled = FiellerInterval(y, std::vector<double>(3, 4.0), 0.05);
  const MeanInterval of_y = IntervalOfMean(Summarize(y), 0.05);

  ASSERT_TRUE(scaled.has_value());
  EXPECT_NEAR(scaled->lower, of_y.lower / 4, 1e-14);
  EXPECT_NEAR(scaled->upper, of_y.upper / 4, 1e-14);
}

TEST(FiellerInterval, IsEmptyWithoutABoundedOne) {
  const std::vector<double> y = {1, 2, 3};
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_FALSE(FiellerInterval(y, std::vector{-1.0, 1.0, 2.0}, 0.05));
  EXPECT_FALSE(FiellerInterval(std::vector{1.0}, std::vector{1.0}, 0.05));
  EXPECT_FALSE(FiellerInterval(y, std::vector{1.0, nan, 1.0}, 0.05));
  EXPECT_FALSE(FiellerInterval(std::vector{1.0, nan, 1.0}, y, 0.05));
  EXPECT_THROW(FiellerInterval(y, std::vector{1.0}, 0.05), Error);
}

// The divisor is as uncertain as the dividend, and they share an error. One
// that took the divisor for known would cover far less.
TEST(FiellerInterval, CoversTheTrueRatioAtItsLevel) {
  constexpr int kTrials = 2000;
  Normal normal("fieller");
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> y;
    std::vector<double> x;
    for (int i = 0; i < 5; ++i) {
      const double shared = 0.2 * normal.Next();
      x.push_back(2 + shared + 0.2 * normal.Next());
      y.push_back(6 - shared + 0.2 * normal.Next());
    }
    const auto interval = FiellerInterval(y, x, 0.05);
    ASSERT_TRUE(interval.has_value());
    covered += interval->lower <= 3 && 3 <= interval->upper ? 1 : 0;
  }
  ExpectRate(covered, kTrials, 0.90);
}

TEST(IntervalOfMean, HasNoEndsWithoutASpread) {
  const std::vector<double> one = {2.0};
  const MeanInterval interval = IntervalOfMean(Summarize(one), 0.05);

  EXPECT_EQ(interval.mean, 2.0);
  EXPECT_TRUE(std::isinf(interval.lower) && interval.lower < 0);
  EXPECT_TRUE(std::isinf(interval.upper) && interval.upper > 0);
}

}  // namespace
}  // namespace isoloss::stats::ratio_interval_test
