#include "isoloss/stats/binomial_interval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::stats::binomial_interval_test {
namespace {

// With no success of n the bound solves (1 - p)^n = 1 - confidence; 1e-12
// leaves some thousand roundings. 59 clean runs mean a rate below 5 %, 299 one
// below 1 %.
TEST(BinomialUpperBound, MatchesTheClosedFormWithoutASuccess) {
  for (const int n : {1, 59, 299, 100000}) {
    const double expected = -std::expm1(std::log(0.05) / n);

    EXPECT_NEAR(BinomialUpperBound(0, n, 0.95), expected, 1e-12 * expected);
    EXPECT_NEAR(ClopperPearson(n, n, 0.9).lower, 1 - expected, 1e-12);
  }
  EXPECT_LT(BinomialUpperBound(0, 59, 0.95), 0.05);
  EXPECT_GT(BinomialUpperBound(0, 58, 0.95), 0.05);
  EXPECT_LT(BinomialUpperBound(0, 299, 0.95), 0.01);
  EXPECT_GT(BinomialUpperBound(0, 298, 0.95), 0.01);
}

// R: binom.test(8, 20) gives the 95 % interval 0.1911901 to 0.6394574.
TEST(ClopperPearson, MatchesBinomTest) {
  const BinomialInterval interval = ClopperPearson(8, 20, 0.95);

  EXPECT_NEAR(interval.lower, 0.1911901, 5e-8);
  EXPECT_NEAR(interval.upper, 0.6394574, 5e-8);
}

TEST(ClopperPearson, IsOneSidedBoundsOfHalfTheMiss) {
  const BinomialInterval interval = ClopperPearson(3, 17, 0.9);

  // A lower limit of successes is an upper one of failures.
  EXPECT_NEAR(interval.lower, 1 - BinomialUpperBound(14, 17, 0.95), 1e-12);
  EXPECT_NEAR(interval.upper, BinomialUpperBound(3, 17, 0.95), 1e-12);
}

TEST(ClopperPearson, ReachesTheEndsThatTheCountTouches) {
  EXPECT_EQ(ClopperPearson(0, 5, 0.95).lower, 0);
  EXPECT_EQ(ClopperPearson(5, 5, 0.95).upper, 1);
  EXPECT_EQ(ClopperPearson(0, 0, 0.95).lower, 0);
  EXPECT_EQ(ClopperPearson(0, 0, 0.95).upper, 1);
}

TEST(ClopperPearson, RejectsArgumentsOutOfRange) {
  EXPECT_THROW(ClopperPearson(-1, 5, 0.95), Error);
  EXPECT_THROW(ClopperPearson(6, 5, 0.95), Error);
  EXPECT_THROW(BinomialUpperBound(0, 5, 1), Error);
  EXPECT_THROW(ClopperPearson(0, 5, std::nan("")), Error);
}

// No simulation needed: the coverage at p is the probability of the counts
// whose interval holds p. 1e-12 for the roundings of 31 terms.
TEST(ClopperPearson, CoversEveryProbabilityAtItsLevel) {
  constexpr int kCount = 30;
  for (const double confidence : {0.8, 0.95}) {
    double least = 1;
    for (int step = 1; step < 300; ++step) {
      const double p = step / 300.0;
      double covered = 0;
      for (int k = 0; k <= kCount; ++k) {
        const BinomialInterval interval = ClopperPearson(k, kCount, confidence);
        if (p < interval.lower || p > interval.upper) continue;
        covered += std::exp(std::lgamma(kCount + 1) - std::lgamma(k + 1) -
                            std::lgamma(kCount - k + 1) + k * std::log(p) +
                            (kCount - k) * std::log1p(-p));
      }
      least = std::min(least, covered);
    }

    EXPECT_GE(least, confidence - 1e-12);
    // Tight somewhere: an interval of one count more would lose it.
    EXPECT_LT(least, confidence + 0.03);
  }
}

}  // namespace
}  // namespace isoloss::stats::binomial_interval_test
