#include "isoloss/stats/max_t.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"
#include "isoloss/stats/tolerance_limit.h"
#include "simulation.h"

namespace isoloss::stats::max_t_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One statistic, values 0, 1, 2. Without 0 the others have mean 1.5 and sd
// sqrt(1/2): |z| = 3 / sqrt 2; the same without 2; 0 without 1, which counts as
// 3 / sqrt 2. Equal maxima have no spread: the threshold is 3 / sqrt 2.
TEST(MaxT, MatchesAHandCalculation) {
  const MaxT test(std::vector<double>{0, 1, 2}, std::vector<double>{1e-9}, {});

  EXPECT_THAT(test.null_maxima(),
              ElementsAre(DoubleEq(3 / std::sqrt(2.0)), DoubleEq(0),
                          DoubleEq(3 / std::sqrt(2.0))));
  EXPECT_DOUBLE_EQ(test.threshold(), 3 / std::sqrt(2.0));
  EXPECT_FALSE(test.normality().has_value());

  // Location 1, scale 1.
  EXPECT_THAT(test.Test(std::vector<double>{3.1}).exceeding, IsEmpty());
  EXPECT_THAT(test.Test(std::vector<double>{3.2}).exceeding, ElementsAre(0));
  EXPECT_THAT(test.Test(std::vector<double>{-1.2}).exceeding, ElementsAre(0));
  EXPECT_DOUBLE_EQ(test.Test(std::vector<double>{-1.0}).z[0], -2);
}

// Observed 2.9 among 0, 1, 2 has |z| = 1.9. With it in the pool the null runs
// have, from the others: 0: mean 1.97, sd 0.95, 2.07; 1: mean 1.63, sd 1.48,
// 0.43; 2: mean 1.3, sd 1.47, 0.47. One of three is as large: p = 2 / 4. (Two
// of the null maxima without it are.)
TEST(MaxT, RanksTheObservedRunInAPoolOfAll) {
  const MaxT test(std::vector<double>{0, 1, 2}, std::vector<double>{1e-9}, {});

  EXPECT_EQ(test.Test(std::vector<double>{2.9}).p_value, 2.0 / 4);
  EXPECT_EQ(test.Test(std::vector<double>{9}).p_value, 1.0 / 4);
}

std::vector<double> NullRuns(size_t runs, size_t statistics) {
  Normal normal("null");
  return normal.Sample(static_cast<int>(runs * statistics), 5, 2);
}

TEST(MaxT, TakesTheToleranceLimitOfTheLogarithmsOfTheMaxima) {
  const MaxT test(NullRuns(12, 7), std::vector<double>(7, 1e-9),
                  {.coverage = 0.95, .confidence = 0.9});
  std::vector<double> logs;
  for (const double maximum : test.null_maxima()) {
    logs.push_back(std::log(maximum));
  }
  const Summary summary = Summarize(logs);

  EXPECT_DOUBLE_EQ(
      test.threshold(),
      std::exp(summary.mean + ToleranceFactor(12, 0.95, 0.9) * summary.sd));
  EXPECT_DOUBLE_EQ(test.normality().value().statistic,
                   AndersonDarling(logs).statistic);
}

TEST(MaxT, NamesTheWorstAndGivesEachItsOwnPValue) {
  const MaxT test(NullRuns(12, 3), std::vector<double>(3, 1e-9), {});

  const MaxTResult result = test.Test(std::vector<double>{5, -500, 6});

  EXPECT_EQ(result.worst, 1U);
  EXPECT_EQ(result.largest, -result.z[1]);
  EXPECT_THAT(result.exceeding, ElementsAre(1));
  EXPECT_DOUBLE_EQ(
      result.p_values[2],
      2 * StudentTUpperTail(std::fabs(result.z[2]) / std::sqrt(1 + 1.0 / 12),
                            11));
}

// One null run is up to 1e12 from the others, which are 1e-3 apart: taking its
// share out of the sum of squares would leave rounding errors. The others are
// multiples of 2^-10, their summary exact to 1e-12 relative.
TEST(MaxT, StandardisesAnOutlierByTheOthersAlone) {
  const double unit = std::ldexp(1, -10);
  const std::vector<double> others = {unit, 2 * unit, 4 * unit, 9 * unit};
  const Summary summary = Summarize(others);
  for (const double outlier : {3e5, 7e6, 1e8, 5e9, 3e10, 1e12}) {
    std::vector<double> null = others;
    null.push_back(outlier);
    const MaxT test(null, std::vector<double>{1e-12}, {});
    const double expected = (outlier - summary.mean) / summary.sd;

    EXPECT_NEAR(test.null_maxima()[4], expected, 1e-12 * expected);
  }
}

// Bit-identical null runs: nothing is known but the floor, and a deviation of
// the floor's size is of no concern.
TEST(MaxT, FallsBackToTheFloorWithoutSpread) {
  const MaxT test(std::vector<double>(10, 0.1), std::vector<double>{1e-6}, {});

  EXPECT_EQ(test.threshold(), 1);
  EXPECT_THAT(test.Test(std::vector<double>{0.1 + 0.9e-6}).exceeding,
              IsEmpty());
  EXPECT_THAT(test.Test(std::vector<double>{0.1 + 1.1e-6}).exceeding,
              ElementsAre(0));
}

// All null runs within the floor: the threshold is the floor itself, not the
// largest of their small ratios to it.
TEST(MaxT, NeverFlagsADeviationOfTheFloor) {
  const MaxT test(std::vector<double>{0, 1, 0, 1, 2}, std::vector<double>{1e3},
                  {});

  EXPECT_EQ(test.threshold(), 1);
}

TEST(MaxT, FlagsWhatIsNotFiniteOrHuge) {
  const MaxT test(NullRuns(9, 2), std::vector<double>(2, 1e-9), {});
  for (const double bad : {std::nan(""), kInfinity, -kInfinity, 1e300}) {
    const MaxTResult result = test.Test(std::vector<double>{5, bad});

    EXPECT_THAT(result.exceeding, ElementsAre(1)) << bad;
    EXPECT_EQ(result.worst, 1U);
    EXPECT_EQ(result.p_value, 1.0 / 10);
    EXPECT_FALSE(std::isnan(result.z[1]));
  }
}

TEST(MaxT, RejectsArgumentsOutOfRange) {
  const std::vector<double> floor = {1};
  const std::vector<double> three = {1, 2, 3};

  EXPECT_THROW(MaxT(std::vector<double>{1, 2}, floor, {}), Error);
  EXPECT_THROW(MaxT(three, {}, {}), Error);
  EXPECT_THROW(MaxT(three, std::vector<double>{1, 1}, {}), Error);
  EXPECT_THROW(MaxT(three, std::vector<double>{0}, {}), Error);
  EXPECT_THROW(MaxT(std::vector<double>{1, kInfinity, 3}, floor, {}), Error);
  EXPECT_THROW(MaxT(three, floor, {.coverage = 1}), Error);
  EXPECT_THROW(MaxT(three, floor, {}).Test(three), Error);
}

}  // namespace
}  // namespace isoloss::stats::max_t_test
