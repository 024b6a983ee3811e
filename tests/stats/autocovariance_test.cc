#include "isoloss/stats/autocovariance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/summary.h"
#include "simulation.h"

namespace isoloss::stats::autocovariance_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// Mean 3, deviations -2, -1, 1, 0, 2; products at lag 1: 2, -1, 0, 0; at
// lag 2: -2, 0, 2.
const std::vector<double> kFive = {1, 2, 4, 3, 5};

TEST(Autocovariances, MatchAHandCalculation) {
  EXPECT_THAT(Autocovariances(kFive, 2),
              ElementsAre(DoubleEq(2), DoubleEq(0.2), DoubleEq(0)));
}

// Lag 1: (2 + 2 * 1/2 * 0.2) / 4 = 0.55; lag 3 with gamma_3 = (0 - 2) / 5:
// (2 + 2 * 3/4 * 0.2 + 2 * 1/4 * -0.4) / 4 = 0.525.
TEST(NeweyWestError, MatchesAHandCalculation) {
  EXPECT_DOUBLE_EQ(NeweyWestError(kFive, 1).standard_error, std::sqrt(0.55));
  EXPECT_DOUBLE_EQ(NeweyWestError(kFive, 3).standard_error, std::sqrt(0.525));
}

TEST(NeweyWestError, IsTheOrdinaryOneWithoutLags) {
  const Summary summary = Summarize(kFive);

  EXPECT_DOUBLE_EQ(NeweyWestError(kFive, 0).standard_error,
                   summary.sd / std::sqrt(5.0));
}

// Eight values: floor(4 * 0.08^(2/9)) = floor(2.28) = 2 autocovariances are
// used, gamma = 1, 5/8, 2/8. s1 / s0 = 2 (5/8 + 2 * 2/8) / (1 + 2 * 7/8) = 9/11
// and 1.1447 * cbrt((9/11)^2 * 8) = 1.1447 * 1.7496 = 2.003.
TEST(NeweyWestLag, MatchesAHandCalculation) {
  const std::vector<double> steps = {-1, -1, -1, -1, 1, 1, 1, 1};

  EXPECT_EQ(NeweyWestLag(steps), 2);
  EXPECT_EQ(NeweyWestError(steps).lag, 2);
}

// s1 / s0 = 0.4 / 2.4 and 1.1447 * cbrt(5 / 36) = 0.593.
TEST(NeweyWestLag, IsZeroWhereNothingIsCorrelated) {
  EXPECT_EQ(NeweyWestLag(kFive), 0);
}

TEST(NeweyWestLag, GrowsWithTheDependenceUpToHalfTheSeries) {
  Normal normal("lag");
  const auto weak = Autoregression(normal, 500, 0.3);
  const auto strong = Autoregression(normal, 500, 0.9);

  EXPECT_LT(NeweyWestLag(weak), NeweyWestLag(strong));
  // gamma = 1/4, -3/16: s1 / s0 = 3 and 1.1447 * cbrt(9 * 4) = 3.8, but the
  // limit is floor((4 - 1) / 2).
  EXPECT_EQ(NeweyWestLag(std::vector<double>{0, 1, 0, 1}), 1);
}

// The mean of equal values may be rounded, which is no spread.
TEST(Autocovariance, KnowsNoSpreadOfEqualValues) {
  for (size_t count = 4; count < 100; ++count) {
    const std::vector<double> equal(count, 0.1);

    EXPECT_EQ(NeweyWestLag(equal), 0);
    EXPECT_EQ(NeweyWestError(equal, 3).standard_error, 0);
  }
}

TEST(Autocovariance, RejectsArgumentsOutOfRange) {
  const std::vector<double> bad = {1, 2, std::nan(""), 4, 5};

  EXPECT_THROW(Autocovariances(kFive, 5), Error);
  EXPECT_THROW(Autocovariances(kFive, -1), Error);
  EXPECT_THROW(Autocovariances(bad, 1), Error);
  EXPECT_THROW(NeweyWestError(bad), Error);
  EXPECT_THROW(NeweyWestError(kFive, 5), Error);
  EXPECT_THROW(NeweyWestLag(std::vector<double>{1, 2, 3}), Error);
}

}  // namespace
}  // namespace isoloss::stats::autocovariance_test
