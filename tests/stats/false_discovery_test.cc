#include "isoloss/stats/false_discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::stats::false_discovery_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// Benjamini and Hochberg (1995), section 3.1: fifteen p-values of which the
// procedure rejects the first four at q = 0.05 (and Bonferroni three).
const std::vector<double> kExample = {0.0001, 0.0004, 0.0019, 0.0095, 0.0201,
                                      0.0278, 0.0298, 0.0344, 0.0459, 0.3240,
                                      0.4262, 0.5719, 0.6528, 0.7590, 1.0000};

TEST(BenjaminiHochberg, MatchesTheExampleOfItsPaper) {
  const std::vector<double> adjusted = BenjaminiHochberg(kExample);

  for (size_t i = 0; i < adjusted.size(); ++i) {
    EXPECT_EQ(adjusted[i] <= 0.05, i < 4) << i;
  }
  EXPECT_DOUBLE_EQ(adjusted[3], 0.0095 * 15 / 4);
  EXPECT_DOUBLE_EQ(adjusted[4], 0.0201 * 15 / 5);
  // The seventh, 0.0298 * 15 / 7, is smaller than the sixth's own multiple.
  EXPECT_DOUBLE_EQ(adjusted[5], 0.0298 * 15 / 7);
  EXPECT_EQ(adjusted[14], 1);
}

TEST(BenjaminiHochberg, KeepsTheOrderOfItsInput) {
  const std::vector<double> p_values = {0.8, 0.01, 0.04, 0.01};

  // Ranks: 0.01, 0.01, 0.04, 0.8; multiples 0.04, 0.02, 0.16 / 3, 0.8.
  EXPECT_THAT(BenjaminiHochberg(p_values),
              ElementsAre(DoubleEq(0.8), DoubleEq(0.02), DoubleEq(0.16 / 3),
                          DoubleEq(0.02)));
}

TEST(BenjaminiHochberg, TakesNoneAndRefusesWhatIsNoProbability) {
  EXPECT_TRUE(BenjaminiHochberg({}).empty());
  EXPECT_THROW(BenjaminiHochberg(std::vector<double>{1.1}), Error);
  EXPECT_THROW(BenjaminiHochberg(std::vector<double>{std::nan("")}), Error);
}

}  // namespace
}  // namespace isoloss::stats::false_discovery_test
