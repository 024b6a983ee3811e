#include "isoloss/stats/tolerance_limit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::stats::tolerance_limit_test {
namespace {

// Printed one-sided factors (ISO 16269-6, Owen 1963): three decimals, so half
// a unit of the third. The last is the NIST/SEMATECH e-Handbook's example,
// section 7.2.6.3, by the noncentral t: 1.8740.
TEST(ToleranceFactor, MatchesPublishedTables) {
  EXPECT_NEAR(ToleranceFactor(2, 0.95, 0.95), 26.260, 5e-4);
  EXPECT_NEAR(ToleranceFactor(5, 0.95, 0.95), 4.203, 5e-4);
  EXPECT_NEAR(ToleranceFactor(10, 0.90, 0.95), 2.355, 5e-4);
  EXPECT_NEAR(ToleranceFactor(10, 0.95, 0.95), 2.911, 5e-4);
  EXPECT_NEAR(ToleranceFactor(10, 0.99, 0.95), 3.981, 5e-4);
  EXPECT_NEAR(ToleranceFactor(20, 0.95, 0.95), 2.396, 5e-4);
  EXPECT_NEAR(ToleranceFactor(50, 0.95, 0.95), 2.065, 5e-4);
  EXPECT_NEAR(ToleranceFactor(43, 0.90, 0.99), 1.8740, 5e-5);
}

// For many values it tends to z_0.99 = 2.3263 from above, by about
// z_0.95 sqrt((1 + z^2 / 2) / n) = 1e-3 * 1.645 * 1.925 for n = 1e6.
TEST(ToleranceFactor, TendsToTheNormalQuantile) {
  EXPECT_NEAR(ToleranceFactor(1000000, 0.99, 0.95) - 2.3263478740408408,
              1.645e-3 * 1.925, 1e-5);
}

TEST(ToleranceFactor, RejectsArgumentsOutOfRange) {
  EXPECT_THROW(ToleranceFactor(1, 0.95, 0.95), Error);
  EXPECT_THROW(ToleranceFactor(10, 1, 0.95), Error);
  EXPECT_THROW(ToleranceFactor(10, 0.95, std::nan("")), Error);
}

TEST(OrderStatisticPValue, CountsTheNullValuesThatAreAtLeastAsLarge) {
  const std::vector<double> null = {3, 1, 2, 2};

  EXPECT_EQ(OrderStatisticPValue(null, 4), 1.0 / 5);
  EXPECT_EQ(OrderStatisticPValue(null, 2), 4.0 / 5);
  EXPECT_EQ(OrderStatisticPValue(null, 0), 1.0);
  EXPECT_EQ(OrderStatisticPValue({}, 0), 1.0);
}

TEST(OrderStatisticPValue, TakesNanForTheLargestAndRefusesItInTheNull) {
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_EQ(OrderStatisticPValue(std::vector<double>{1, 2}, nan), 1.0 / 3);
  EXPECT_THROW(OrderStatisticPValue(std::vector<double>{1, nan}, 0), Error);
}

}  // namespace
}  // namespace isoloss::stats::tolerance_limit_test
