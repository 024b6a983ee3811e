#include "isoloss/stats/student_t.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "isoloss/base/error.h"

namespace isoloss::stats::student_t_test {
namespace {

// Closed forms exist for 1, 2 and 4 degrees of freedom. A relative 1e-13 leaves
// some 500 roundings of a double.
TEST(StudentTQuantile, MatchesClosedForms) {
  for (const double p : {0.001, 0.2, 0.6, 0.8, 0.95, 0.999}) {
    const double one = std::tan(std::numbers::pi * (p - 0.5));
    const double two = (2 * p - 1) / std::sqrt(2 * p * (1 - p));
    const double a = 4 * p * (1 - p);
    const double four =
        2 *
        std::copysign(
            std::sqrt(std::cos(std::acos(std::sqrt(a)) / 3) / std::sqrt(a) - 1),
            p - 0.5);

    EXPECT_NEAR(StudentTQuantile(p, 1), one, 1e-13 * std::fabs(one));
    EXPECT_NEAR(StudentTQuantile(p, 2), two, 1e-13 * std::fabs(two));
    EXPECT_NEAR(StudentTQuantile(p, 4), four, 1e-13 * std::fabs(four));
  }
}

// NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2: three
// decimals, so within half a unit of the third.
TEST(StudentTQuantile, MatchesThePublishedTable) {
  EXPECT_NEAR(StudentTQuantile(0.95, 3), 2.353, 5e-4);
  EXPECT_NEAR(StudentTQuantile(0.95, 5), 2.015, 5e-4);
  EXPECT_NEAR(StudentTQuantile(0.95, 10), 1.812, 5e-4);
  EXPECT_NEAR(StudentTQuantile(0.975, 30), 2.042, 5e-4);
  EXPECT_NEAR(StudentTQuantile(0.99, 60), 2.390, 5e-4);
}

// One degree of freedom: 1/2 - atan(t) / pi = atan(1 / t) / pi for t > 0.
TEST(StudentTUpperTail, MatchesTheClosedForm) {
  for (const double t : {0.5, 3.0, 1e8}) {
    const double expected = std::atan(1 / t) / std::numbers::pi;

    EXPECT_NEAR(StudentTUpperTail(t, 1), expected, 1e-13 * expected);
    EXPECT_NEAR(StudentTUpperTail(-t, 1), 1 - expected, 1e-13);
  }
}

TEST(StudentTUpperTail, KnowsTheEndsAndRejectsNan) {
  EXPECT_EQ(StudentTUpperTail(INFINITY, 3), 0);
  EXPECT_EQ(StudentTUpperTail(-INFINITY, 3), 1);
  EXPECT_THROW(StudentTUpperTail(std::nan(""), 3), Error);
  EXPECT_THROW(StudentTUpperTail(1, 0), Error);
}

TEST(StudentTQuantile, RejectsWhatIsNoProbability) {
  EXPECT_THROW(StudentTQuantile(1.0, 3), Error);
  EXPECT_THROW(StudentTQuantile(std::nan(""), 3), Error);
  EXPECT_THROW(StudentTQuantile(0.95, 0), Error);
}

}  // namespace
}  // namespace isoloss::stats::student_t_test
