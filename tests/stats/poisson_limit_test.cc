#include "isoloss/stats/poisson_limit.h"

#include <gtest/gtest.h>

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::stats::poisson_limit_test {
namespace {

/// P(N >= count) term by term, from the smallest.
double TailByTerms(int count, double mean) {
  double sum = 0;
  for (int k = count + 400; k >= count; --k) {
    sum += std::exp(k * std::log(mean) - mean - std::lgamma(k + 1));
  }
  return sum;
}

// lgamma(400) = 2000 is known to 1e-16 relative: 1e-12 for each term.
TEST(PoissonPValue, IsTheSumOfTheTail) {
  for (const double mean : {1e-3, 0.7, 5.0, 80.0}) {
    for (const int count : {1, 2, 9, 100, 200}) {
      const double expected = TailByTerms(count, mean);

      EXPECT_NEAR(PoissonPValue(count, mean), expected, 2e-12 * expected);
    }
  }
}

TEST(PoissonPValue, KnowsTheEnds) {
  EXPECT_EQ(PoissonPValue(0, 5), 1);
  EXPECT_EQ(PoissonPValue(0, 0), 1);
  EXPECT_EQ(PoissonPValue(1, 0), 0);
}

TEST(PoissonUpperLimit, IsTheSmallestCountThatIsRareEnough) {
  for (const double mean : {1e-9, 0.3, 4.0, 77.7, 1e4, 3e7, 2e8, 1e12}) {
    for (const double alpha : {0.5, 0.01, 1e-6}) {
      const int64_t limit = PoissonUpperLimit(mean, alpha);

      EXPECT_LE(PoissonPValue(limit + 1, mean), alpha) << mean;
      EXPECT_GT(PoissonPValue(limit, mean), alpha) << mean;
    }
  }
}

// Printed table of the Poisson distribution, mean 5: P(N <= 10) = 0.9863,
// P(N <= 11) = 0.9945.
TEST(PoissonUpperLimit, MatchesThePrintedTable) {
  EXPECT_EQ(PoissonUpperLimit(5, 0.01), 11);
  EXPECT_EQ(PoissonUpperLimit(5, 0.02), 10);
  EXPECT_EQ(PoissonUpperLimit(0, 0.01), 0);
}

// The expansion takes over at 1e8 with a relative error of about 1e-8; its
// probability is that of Boost wherever Boost has one.
TEST(PoissonPValue, IsContinuousWhereTheExpansionTakesOver) {
  for (const double sigmas : {-4.0, -0.01, 0.0, 1.0, 4.0, 12.0}) {
    const double mean = 100001000;
    const auto count = static_cast<int64_t>(mean + sigmas * 1e4);
    if (count <= 100000000) continue;
    const double expected =
        boost::math::gamma_p(static_cast<double>(count), mean);

    EXPECT_NEAR(PoissonPValue(count, mean), expected, 1e-7 * expected)
        << sigmas;
  }
}

// Cornish and Fisher: c = mean + z sqrt(mean) + (z^2 - 1) / 6 - 1/2 but for
// O(1 / sqrt(mean)), rounded up; z_{1 - 1e-6} = 4.753424308822899.
TEST(PoissonUpperLimit, IsStableForLargeMeans) {
  for (const double mean : {1e9, 1e12, 1e15}) {
    const double z = 4.753424308822899;
    const double expected = z * std::sqrt(mean) + (z * z - 1) / 6 - 0.5;
    const auto above = static_cast<double>(PoissonUpperLimit(mean, 1e-6) -
                                           static_cast<int64_t>(mean));

    EXPECT_NEAR(above, expected, 1.0) << mean;
  }
}

TEST(PoissonLimit, RejectsArgumentsOutOfRange) {
  EXPECT_THROW(PoissonUpperLimit(-1, 0.01), Error);
  EXPECT_THROW(PoissonUpperLimit(1e16, 0.01), Error);
  EXPECT_THROW(PoissonUpperLimit(std::nan(""), 0.01), Error);
  EXPECT_THROW(PoissonUpperLimit(1, 0), Error);
  EXPECT_THROW(PoissonPValue(-1, 1), Error);
}

}  // namespace
}  // namespace isoloss::stats::poisson_limit_test
