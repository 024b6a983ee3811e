#include "isoloss/stats/rate_optimum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::stats {
namespace {

constexpr double kDiverged = std::numeric_limits<double>::infinity();

/// Losses of a parabola in log2 of the rate, lowest at 2^lowest.
std::vector<double> Parabola(const std::vector<double>& rates, double lowest) {
  std::vector<double> losses;
  for (const double rate : rates) {
    const double distance = std::log2(rate) - lowest;
    losses.push_back(2 + 0.1 * distance * distance);
  }
  return losses;
}

const std::vector<double> kRates = {0.25, 0.5, 1, 2, 4};

TEST(RateOptimum, IsTheLowestPointOfTheParabola) {
  const auto optimum = FindRateOptimum(kRates, Parabola(kRates, 0.3));

  ASSERT_TRUE(optimum);
  EXPECT_EQ(optimum->best, 2U);
  EXPECT_TRUE(optimum->bracketed);
  // Three points define the parabola, so only FP64 roundings remain.
  EXPECT_NEAR(std::log2(optimum->rate), 0.3, 1e-12);
}

TEST(RateOptimum, IsTheRateItselfAtAnEdge) {
  for (const double lowest : {-3.0, 5.0}) {
    const auto optimum = FindRateOptimum(kRates, Parabola(kRates, lowest));

    ASSERT_TRUE(optimum);
    EXPECT_FALSE(optimum->bracketed);
    EXPECT_EQ(optimum->rate, lowest < 0 ? 0.25 : 4.0);
  }
}

TEST(RateOptimum, IsBracketedByARateThatDiverged) {
  std::vector<double> losses = Parabola(kRates, 1.4);
  losses[4] = kDiverged;

  const auto optimum = FindRateOptimum(kRates, losses);

  ASSERT_TRUE(optimum);
  EXPECT_EQ(optimum->best, 3U);
  EXPECT_TRUE(optimum->bracketed);
  EXPECT_EQ(optimum->rate, 2.0);  // no parabola without a right neighbour
}

TEST(RateOptimum, TakesNaNForDivergence) {
  const auto optimum = FindRateOptimum(
      kRates, std::vector<double>{std::nan(""), 3, 2, std::nan(""), kDiverged});

  ASSERT_TRUE(optimum);
  EXPECT_EQ(optimum->best, 2U);
}

TEST(RateOptimum, IsNoneIfEveryRateDiverged) {
  EXPECT_FALSE(FindRateOptimum(kRates, std::vector<double>(5, kDiverged)));
  EXPECT_FALSE(FindRateOptimum({}, {}));
}

TEST(RateOptimum, OfEqualLossesIsTheLowerRate) {
  const auto optimum =
      FindRateOptimum(kRates, std::vector<double>{3, 2, 2, 2, 3});

  ASSERT_TRUE(optimum);
  EXPECT_EQ(optimum->best, 1U);
  // The parabola through (-2, 3), (-1, 2), (0, 2) is lowest at -0.5.
  EXPECT_NEAR(std::log2(optimum->rate), -0.5, 1e-12);
}

TEST(LossAtRate, IsLinearInTheLogOfTheRate) {
  const std::vector<double> losses = {5, 4, 3, 4, kDiverged};

  EXPECT_EQ(LossAtRate(kRates, losses, 0.5), 4);
  EXPECT_NEAR(*LossAtRate(kRates, losses, std::exp2(-0.25)), 3.25, 1e-12);
  EXPECT_EQ(LossAtRate(kRates, losses, 2), 4);
}

TEST(LossAtRate, IsUnknownOutsideAndBesideDivergence) {
  const std::vector<double> losses = {5, 4, 3, 4, kDiverged};

  for (const double rate : {0.2, 3.0, 4.0, 5.0}) {
    EXPECT_FALSE(LossAtRate(kRates, losses, rate)) << rate;
  }
}

}  // namespace
}  // namespace isoloss::stats
