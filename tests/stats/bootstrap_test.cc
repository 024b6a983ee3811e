#include "isoloss/stats/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/autocovariance.h"
#include "isoloss/stats/summary.h"
#include "simulation.h"

namespace isoloss::stats::bootstrap_test {
namespace {

std::vector<double> Series() {
  Normal normal("series");
  return Autoregression(normal, 60, 0.6);
}

/// The bootstrap's variance of the mean without sampling error, Politis and
/// Romano (1994), lemma 1: gamma_0 / n + 2/n sum_i b_i gamma_i, where
/// b_i = (1 - i/n) q^i + (i/n) q^(n-i) and q = 1 - 1 / block_length.
double ExactVariance(const std::vector<double>& values, double block_length) {
  const auto gamma =
      Autocovariances(values, static_cast<int64_t>(values.size()) - 1);
  const double n = static_cast<double>(values.size());
  const double q = 1 - 1 / block_length;
  double sum = gamma[0];
  for (size_t lag = 1; lag < gamma.size(); ++lag) {
    const double i = static_cast<double>(lag);
    sum += 2 * gamma[lag] *
           ((1 - i / n) * std::pow(q, i) + i / n * std::pow(q, n - i));
  }
  return sum / n;
}

// The standard deviation of B resamples has relative error 1 / sqrt(2 B) for
// normal means; 4 sigma of B = 20 000 are 0.02.
TEST(StationaryBootstrapMean, HasTheExactVarianceOfItsScheme) {
  const std::vector<double> values = Series();
  for (const double length : {1.0, 2.5, 8.0, 40.0}) {
    const auto result = StationaryBootstrapMean(
        values, {.resamples = 20000, .seed = 3, .block_length = length});
    const double expected = std::sqrt(ExactVariance(values, length));

    EXPECT_NEAR(result.standard_error, expected, 0.02 * expected) << length;
    EXPECT_EQ(result.block_length, length);
  }
}

// Blocks so long that none ends: every pseudo-series is a rotation. Sums of 60
// values of size 1 leave 1e-13.
TEST(StationaryBootstrapMean, RotatesTheSeriesIfBlocksNeverEnd) {
  const std::vector<double> values = Series();
  const auto result = StationaryBootstrapMean(values, {.block_length = 1e12});

  EXPECT_NEAR(result.lower, Mean(values), 1e-13);
  EXPECT_NEAR(result.upper, Mean(values), 1e-13);
}

TEST(StationaryBootstrapMean, DependsOnTheSeedOnly) {
  const std::vector<double> values = Series();
  const auto a = StationaryBootstrapMean(values, {.seed = 1});
  const auto again = StationaryBootstrapMean(values, {.seed = 1});
  const auto b = StationaryBootstrapMean(values, {.seed = 2});

  EXPECT_EQ(a.lower, again.lower);
  EXPECT_EQ(a.upper, again.upper);
  EXPECT_NE(a.lower, b.lower);
}

// Shifted and scaled values move the interval along: rounding of a mean of 60
// values near 1e6 is at most 60 * 2^-33.
TEST(StationaryBootstrapMean, FollowsShiftAndScale) {
  const std::vector<double> values = Series();
  std::vector<double> moved = values;
  for (double& value : moved) value = 1e6 + 2 * value;
  const BootstrapOptions options = {.block_length = 4};

  const auto a = StationaryBootstrapMean(values, options);
  const auto b = StationaryBootstrapMean(moved, options);

  EXPECT_NEAR(b.lower, 1e6 + 2 * a.lower, 1e-8);
  EXPECT_NEAR(b.upper, 1e6 + 2 * a.upper, 1e-8);
}

// For an AR(1) the optimal length is cbrt((2 phi / (1 - phi^2))^2 n): 32.9 for
// phi 0.5 and n = 20 000. The estimate of the ratio from some 2 * 12 lags has
// an error of about 24^1.5 / sqrt(20 000) = 0.8 / 1.33 sigma at worst, cubed
// root of its square: a quarter is generous, a factor of the formula is not
// that small.
TEST(StationaryBlockLength, TendsToTheOptimumOfAnAutoregression) {
  Normal normal("length");

  EXPECT_NEAR(StationaryBlockLength(Autoregression(normal, 20000, 0.5)), 32.9,
              0.25 * 32.9);
}

// gamma = 1, 5/8, 2/8, ...: all within 2 sqrt(log10(8) / 8) = 0.67, so that two
// lags are used, with weights 1 and 0. G = 2 * 5/8, g = 1 + 2 * 5/8, and the
// length is cbrt((G / g)^2 * 8) = cbrt((5/9)^2 * 8).
TEST(StationaryBlockLength, MatchesAHandCalculation) {
  const std::vector<double> steps = {-1, -1, -1, -1, 1, 1, 1, 1};

  EXPECT_DOUBLE_EQ(StationaryBlockLength(steps), std::cbrt(200.0 / 81));
}

TEST(StationaryBlockLength, StaysWithinItsLimits) {
  Normal normal("limits");
  std::vector<double> alternating;
  for (int i = 0; i < 8; ++i) alternating.push_back(i % 2);

  // A spectrum that vanishes at 0 asks for endless blocks; the limit is
  // ceil(min(3 * 2.8, 8 / 3)).
  EXPECT_EQ(StationaryBlockLength(alternating), 3);
  EXPECT_GE(StationaryBlockLength(normal.Sample(100)), 1);
  EXPECT_EQ(StationaryBlockLength(std::vector<double>(50, 2.0)), 1);
}

TEST(StationaryBootstrapMean, RejectsArgumentsOutOfRange) {
  const std::vector<double> values = Series();
  std::vector<double> bad = values;
  bad[3] = std::nan("");

  EXPECT_THROW(StationaryBootstrapMean(bad, {}), Error);
  EXPECT_THROW(StationaryBootstrapMean(std::vector<double>(7, 1.0), {}), Error);
  EXPECT_THROW(StationaryBootstrapMean(values, {.confidence = 1}), Error);
  EXPECT_THROW(StationaryBootstrapMean(values, {.resamples = 38}), Error);
  EXPECT_THROW(StationaryBootstrapMean(values, {.block_length = 0.5}), Error);
}

}  // namespace
}  // namespace isoloss::stats::bootstrap_test
