#include "isoloss/stats/non_central_t.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "non_central_t_cdf.h"

namespace isoloss::stats::non_central_t_test {
namespace {

double NormalCdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

// P(t <= 0) = P(Z <= -delta), whatever the degrees of freedom. A relative 1e-13
// leaves some 500 roundings of a double.
TEST(NonCentralTCdf, IsANormalProbabilityAtZero) {
  for (const double delta : {-3.0, -0.5, 0.0, 1.0, 6.0}) {
    for (const double nu : {1.0, 7.0, 300.0}) {
      EXPECT_NEAR(NonCentralTCdf(0, nu, delta), NormalCdf(-delta),
                  1e-13 * NormalCdf(-delta));
    }
  }
}

TEST(NonCentralTQuantile, IsStudentsWithoutNoncentrality) {
  for (const double p : {0.01, 0.3, 0.95}) {
    const double t = StudentTQuantile(p, 5);

    EXPECT_NEAR(NonCentralTQuantile(p, 5, 0), t, 1e-9 * std::fabs(t));
  }
}

// Noncentralities as tolerance limits ask for: z_0.999 * sqrt(300) = 53.
TEST(NonCentralTQuantile, InvertsTheDistributionFunction) {
  for (const double nu : {1.0, 10.0, 299.0}) {
    for (const double delta : {-2.0, 5.0, 53.0}) {
      for (const double p : {0.05, 0.5, 0.99}) {
        const double t = NonCentralTQuantile(p, nu, delta);

        EXPECT_NEAR(NonCentralTCdf(t, nu, delta), p, 1e-9)
            << nu << " " << delta;
      }
    }
  }
}

TEST(NonCentralT, RejectsArgumentsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_THROW(NonCentralTQuantile(0.5, 5, nan), Error);
  EXPECT_THROW(NonCentralTQuantile(1, 5, 0), Error);
  EXPECT_THROW(NonCentralTQuantile(0.5, 0, 0), Error);
}

/// Levels of early looks are tiny and their quantiles huge. With Z left out,
/// P(T > t) = P(chi^2_1 < (delta / t)^2) = 0.682689 at delta = t; the series
/// below the switch differs by a term of 1 / delta^2.
TEST(NonCentralTUpperTail, GoesOnWhereTheSeriesEnds) {
  for (const double delta : {900.0, 1100.0, 1e5, 1e8}) {
    EXPECT_NEAR(NonCentralTUpperTail(delta, 1, delta), 0.682689, 2e-6) << delta;
  }
}

}  // namespace
}  // namespace isoloss::stats::non_central_t_test
