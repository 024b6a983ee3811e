#include "isoloss/stats/group_sequential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "isoloss/base/error.h"

namespace isoloss::stats::group_sequential_test {
namespace {

double UpperTail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

TEST(SpentAlpha, IsThatOfLanAndDeMets) {
  // 2 - 2 Phi(2.241403 / sqrt(0.5)) and 0.025 ln(1 + (e - 1) / 2).
  EXPECT_NEAR(SpentAlpha(Spending::kOBrienFleming, 0.025, 0.5),
              2 * UpperTail(2.241403 / std::sqrt(0.5)), 1e-8);
  EXPECT_NEAR(SpentAlpha(Spending::kPocock, 0.025, 0.5), 0.0155028, 1e-7);
  for (const Spending spending :
       {Spending::kPocock, Spending::kOBrienFleming}) {
    EXPECT_EQ(SpentAlpha(spending, 0.05, 1), 0.05);
    EXPECT_EQ(SpentAlpha(spending, 0.05, 1.5), 0.05);
  }
}

TEST(LookLevels, OneLookIsATestAtAlpha) {
  for (const Spending spending :
       {Spending::kPocock, Spending::kOBrienFleming}) {
    for (const int64_t count : {1, 2, 12, 13}) {
      LookLevels looks(spending, 0.05, 12);
      if (count >= 12) {
        EXPECT_EQ(looks.Next(count), 0.05);
      } else {
        EXPECT_LT(looks.Next(count), 0.05);
      }
    }
  }
}

TEST(LookLevels, NothingIsLeftBehindTheLargestSample) {
  LookLevels looks(Spending::kOBrienFleming, 0.05, 12);
  looks.Next(12);

  EXPECT_EQ(looks.Next(13), 0);
  EXPECT_EQ(looks.Next(1000), 0);
  EXPECT_EQ(looks.spent(), 0.05);
}

// Limits of five equally spaced looks, known variance and one-sided 0.025, as
// programs for the method of Lan and DeMets (ldbounds of R) print
// them: four decimals, so that a level is known to within
// phi(z) / (1 - Phi(z)) * 5e-5 < 2.6e-4 relative. A t test of 20 000 values
// differs by about z^3 / (4 n) = 2e-3 of a standard deviation at most in its
// limit, but not in its level. What remains is the error of the ranges.
TEST(LookLevels, OfLargeSamplesAreThoseOfKnownVariance) {
  const double obrien[] = {4.8769, 3.3569, 2.6803, 2.2898, 2.0310};
  const double pocock[] = {2.4380, 2.4268, 2.4101, 2.3966, 2.3859};
  LookLevels obrien_looks(Spending::kOBrienFleming, 0.025, 20000);
  LookLevels pocock_looks(Spending::kPocock, 0.025, 20000);

  for (int k = 0; k < 5; ++k) {
    const int64_t count = 4000 * (k + 1);
    EXPECT_NEAR(obrien_looks.Next(count) / UpperTail(obrien[k]), 1, 2e-3) << k;
    EXPECT_NEAR(pocock_looks.Next(count) / UpperTail(pocock[k]), 1, 2e-3) << k;
  }
}

// Two looks whose second has one value more, or two: with Bonferroni's bound
// both levels add up to alpha; as soon as tests agree at all, more is left.
TEST(LookLevels, SpendMoreThanBonferroniAllows) {
  for (const int64_t more : {1, 2, 9}) {
    LookLevels looks(Spending::kPocock, 0.05, 3 + more);
    const double first = looks.Next(3);
    const double second = looks.Next(3 + more);

    EXPECT_GT(first + second, 0.0505) << more;
    EXPECT_LT(second, 0.05) << more;
  }
}

// What a test of one value spent, it spent independently of all others.
TEST(LookLevels, OneValueCountsLikeBonferroni) {
  LookLevels looks(Spending::kPocock, 0.05, 4);
  const double first = looks.Next(1);

  EXPECT_DOUBLE_EQ(first, SpentAlpha(Spending::kPocock, 0.05, 0.25));
  EXPECT_DOUBLE_EQ(looks.Next(4), 0.05 - first);
}

TEST(LookLevels, RefuseWhatIsNoPlan) {
  EXPECT_THROW(LookLevels(Spending::kPocock, 0, 4), Error);
  EXPECT_THROW(LookLevels(Spending::kPocock, 0.5, 4), Error);
  EXPECT_THROW(LookLevels(Spending::kPocock, 0.05, 0), Error);
  LookLevels looks(Spending::kPocock, 0.05, 8);
  EXPECT_THROW(looks.Next(0), Error);
  looks.Next(4);
  EXPECT_THROW(looks.Next(4), Error);
  EXPECT_THROW(looks.Next(3), Error);
}

}  // namespace
}  // namespace isoloss::stats::group_sequential_test
