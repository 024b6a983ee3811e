#include "isoloss/foreign/foreign_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace isoloss::foreign {
namespace {

using ::testing::ElementsAre;

TEST(Finish, KeepsTheLastValueOfAStepAndCountsTheOthers) {
  ForeignRun run;
  Series& loss = run.Of("loss");
  loss.Add(1, 5);
  loss.Add(2, 4);
  loss.Add(3, 3);
  loss.Add(2, 4);    // another rank
  loss.Add(3, 2.5);  // after a resume
  run.Of("empty");
  run.Finish();
  ASSERT_EQ(run.series.size(), 1u);
  EXPECT_THAT(run.series[0].step, ElementsAre(1, 2, 3));
  EXPECT_THAT(run.series[0].value, ElementsAre(5, 4, 2.5));
  EXPECT_EQ(run.series[0].copies, 1);
  EXPECT_EQ(run.series[0].repeated, 1);
  EXPECT_EQ(run.series[0].first_repeat, 3);
}

TEST(Digits, AreThoseOfTheFinestValue) {
  Digits digits;
  digits.Include("10.911");
  digits.Include("9.48213");
  digits.Include("nan");
  EXPECT_EQ(digits.decimals, 5);
  EXPECT_EQ(digits.significant, 6);
  EXPECT_DOUBLE_EQ(digits.HalfUnit(10.911), 0.5e-5);
  Digits scientific;
  scientific.Include("1.234567E+01");
  EXPECT_EQ(scientific.significant, 7);
  // Units of the seventh digit of 12.34567 are 1e-5.
  EXPECT_DOUBLE_EQ(scientific.HalfUnit(12.34567), 0.5e-5);
  Digits full;
  full.Include("3.8644182682037354");
  EXPECT_TRUE(full.exact());
  EXPECT_EQ(full.HalfUnit(3.86), 0);
}

TEST(Spacing, OfStepOneAndEveryTenth) {
  const Spacing spacing = SpacingOf({1, 10, 20, 30, 60, 70, 75});
  EXPECT_EQ(spacing.stride, 10);
  EXPECT_EQ(spacing.gaps, 1);
  EXPECT_EQ(spacing.first_gap, 30);
  EXPECT_EQ(spacing.missing, 2);
  // As they stand in a log that was resumed.
  EXPECT_EQ(SpacingOf({5, 5, 5, 7, 3}).stride, 2);
  EXPECT_EQ(SpacingOf({5, 5}).stride, 1);
}

// The correlation of n differences has a standard deviation of at most
// 1/sqrt(n): with the later 2,000 of 4,000, 0.1 is 4.5 of them.
TEST(DifferenceCorrelation, TellsSmoothedFromIndependentValues) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> plain;
  std::vector<double> smooth;
  double mean = 0;
  for (int i = 0; i < 4001; ++i) {
    plain.push_back(3 + normal(random));
    mean = 0.9 * mean + 0.1 * plain.back();
    smooth.push_back(mean);
  }
  EXPECT_NEAR(DifferenceCorrelation(plain), -0.5, 0.1);
  EXPECT_NEAR(DifferenceCorrelation(smooth), -0.05, 0.1);
  EXPECT_TRUE(std::isnan(DifferenceCorrelation({1, 2, 3})));
}

}  // namespace
}  // namespace isoloss::foreign
