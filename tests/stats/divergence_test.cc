#include "isoloss/stats/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace isoloss::stats::divergence_test {
namespace {

/// 20 steps, so that windows are of two. 10 - 2 = 8 are learnt: a window is bad
/// above 2 + 0.8.
std::vector<double> Learning() {
  std::vector<double> losses = {10, 8, 6, 4, 2, 2, 2, 2};
  losses.resize(20, 2.0);
  return losses;
}

TEST(DivergedAt, IsTheStartOfTheFirstWindowFromWhichOnAllAreBad) {
  std::vector<double> losses = Learning();
  EXPECT_EQ(DivergedAt(losses, 20, true), std::nullopt);

  // Means of steps 8 and 9, of 9 and 10: (2 + 3) / 2 = 2.5 is not bad, 3 is.
  for (size_t i = 8; i < 20; ++i) losses[i] = 3;
  EXPECT_EQ(DivergedAt(losses, 20, true), 9);
  // It had recovered in steps 13 and 14.
  losses[12] = 2;
  losses[13] = 2;
  EXPECT_EQ(DivergedAt(losses, 20, true), 15);
  // It has at the end.
  losses[18] = 2;
  losses[19] = 2;
  EXPECT_EQ(DivergedAt(losses, 20, true), std::nullopt);
}

TEST(DivergedAt, ChanceAloneIsNoDivergence) {
  // Nothing is learnt, and 100 losses scatter by 0.05. The least of the 91
  // means of ten lies some 2.5 standard errors below the middle, and the last
  // one rarely more than 3 above it. Where the least mean comes early, few
  // steps tell how large chance is: hence up to 2 % of runs.
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(5, 0.05);
  int diverged = 0;
  for (int run = 0; run < 1000; ++run) {
    std::vector<double> losses;
    for (int step = 0; step < 100; ++step) losses.push_back(noise(random));
    diverged += DivergedAt(losses, 100, true).has_value() ? 1 : 0;
  }
  EXPECT_LE(diverged, 20);
}

TEST(DivergedAt, IsTheFirstLossThatIsNotFinite) {
  std::vector<double> losses = Learning();
  losses.resize(12);
  losses.push_back(std::nan(""));
  EXPECT_EQ(DivergedAt(losses, 20, false), 13);

  // The loss had risen before.
  losses[10] = 9;
  losses[11] = 9;
  EXPECT_EQ(DivergedAt(losses, 20, false), 10);
  EXPECT_EQ(DivergedAt(std::vector{std::nan("")}, 20, false), 1);
}

TEST(DivergedAt, IsTheLastStepOfARunThatDidNotComplete) {
  EXPECT_EQ(DivergedAt(Learning(), 20, false), 20);
}

}  // namespace
}  // namespace isoloss::stats::divergence_test
