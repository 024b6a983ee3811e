#include "isoloss/stats/power.h"

#include <gtest/gtest.h>

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "non_central_t_cdf.h"

namespace isoloss::stats::power_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

EquivalenceOptions Margin(double margin) { return {.margin = margin}; }

/// A 2x2 cross-over trial of n subjects on the log scale: the difference of
/// treatments has standard error sqrt(2 ln(1 + CV^2) / n), n - 2 degrees of
/// freedom; limits 0.8 to 1.25, true ratio 0.95.
double CrossOverPower(double cv, double n) {
  const double standard_error = std::sqrt(2 * std::log1p(cv * cv) / n);
  return TwoOneSidedPower(std::log(0.95), standard_error, n - 2,
                          Margin(std::log(1.25)));
}

// R's PowerTOST: power.TOST(CV = 0.3, n = 40) is documented as 0.8158453,
// sampleN.TOST(CV = 0.2) gives n = 20 with power 0.834680 and CV = 0.25 n = 28
// with 0.807439. Half a unit of the last digit.
TEST(TwoOneSidedPower, MatchesPowerTost) {
  EXPECT_NEAR(CrossOverPower(0.3, 40), 0.8158453, 5e-8);
  EXPECT_NEAR(CrossOverPower(0.2, 20), 0.834680, 5e-7);
  EXPECT_NEAR(CrossOverPower(0.25, 28), 0.807439, 5e-7);
  EXPECT_LT(CrossOverPower(0.3, 38), 0.8);
  EXPECT_LT(CrossOverPower(0.2, 18), 0.8);
}

/// The same probability by integrating over the estimate instead of its
/// spread: given the estimate x (in standard errors from 0) the test passes iff
/// the estimated standard error is below (margin - |x|) / t. Simpson's rule on
/// each side of the kink at 0.
double PowerByEstimate(double mean, double margin, double nu, double alpha) {
  const double t = -StudentTQuantile(alpha, nu);
  const auto integrand = [&](double x) {
    const double limit = (margin - std::fabs(x)) / t;
    return std::exp(-(x - mean) * (x - mean) / 2) /
           std::sqrt(2 * std::numbers::pi) *
           boost::math::gamma_p(nu / 2, nu * limit * limit / 2);
  };
  const int intervals = 20000;
  const double h = margin / intervals;
  double sum = 0;
  for (const double side : {-1.0, 1.0}) {
    for (int i = 0; i <= intervals; ++i) {
      const double weight = i == 0 || i == intervals ? 1 : i % 2 == 0 ? 2 : 4;
      sum += weight * integrand(side * h * i);
    }
  }
  return sum * h / 3;
}

// The integrand behaves like (margin - |x|)^nu at the ends, where for nu = 1
// Simpson's rule is of second order: its error is about h^2 = 1e-7 there, and
// less than 1e-9 for the others.
TEST(TwoOneSidedPower, AgreesWithIntegrationOverTheEstimate) {
  for (const double nu : {1.0, 2.0, 5.0, 40.0}) {
    for (const double margin : {1.0, 3.0, 8.0}) {
      for (const double mean : {0.0, 0.5 * margin, margin, 1.5 * margin}) {
        EXPECT_NEAR(TwoOneSidedPower(mean, 1, nu, Margin(margin)),
                    PowerByEstimate(mean, margin, nu, 0.05),
                    nu == 1 ? 1e-7 : 2e-9)
            << nu << " " << margin << " " << mean;
      }
    }
  }
}

// One-sided the test passes iff (estimate - margin) / s < -t, a noncentral t.
TEST(TwoOneSidedPower, IsANoncentralTProbabilityWhenOneSided) {
  EquivalenceOptions options = Margin(0.25);
  options.one_sided = true;
  for (const double mean : {-1.0, 0.0, 0.2, 0.3}) {
    for (const int64_t pairs : {2, 5, 30, 1000}) {
      const double n = static_cast<double>(pairs);
      const double t = StudentTQuantile(0.05, n - 1);

      EXPECT_NEAR(EquivalencePower(mean, 0.4, pairs, options),
                  NonCentralTCdf(t, n - 1, (mean - 0.25) / 0.4 * std::sqrt(n)),
                  1e-9)
          << mean << " " << pairs;
    }
  }
}

// The margin is 1e9 standard errors wide and its end hit exactly: the power is
// alpha. 1.6448536269514722 standard errors inside it is 1/2 for a known
// spread; with nu = 1e8, t and the spread's share shift it by O(1 / nu).
TEST(TwoOneSidedPower, ResolvesAnEdgeFarFromTheCentre) {
  const double se = 1e-9;

  EXPECT_NEAR(TwoOneSidedPower(1, se, 10, Margin(1)), 0.05, 1e-9);
  EXPECT_NEAR(TwoOneSidedPower(1 - 1.6448536269514722 * se, se, 1e8, Margin(1)),
              0.5, 1e-7);
  EXPECT_NEAR(TwoOneSidedPower(0, se, 1, Margin(1)), 1, 1e-8);
}

TEST(TwoOneSidedPower, IsZeroOrOneWithoutSpread) {
  EXPECT_EQ(TwoOneSidedPower(0.9, 0, 1, Margin(1)), 1);
  EXPECT_EQ(TwoOneSidedPower(-1, 0, 1, Margin(1)), 0);
}

TEST(TwoOneSidedPower, RejectsWhatIsNoTruth) {
  EXPECT_THROW(TwoOneSidedPower(kNan, 1, 5, Margin(1)), Error);
  EXPECT_THROW(TwoOneSidedPower(0, -1, 5, Margin(1)), Error);
  EXPECT_THROW(TwoOneSidedPower(0, 1, 0, Margin(1)), Error);
  EXPECT_THROW(TwoOneSidedPower(0, 1, 5, Margin(0)), Error);
  EXPECT_THROW(EquivalencePower(0, 1, 1, Margin(1)), Error);
}

// Below one half it may fall, and does for a spread far beyond the margin.
TEST(EquivalencePower, RisesWithTheNumberOfPairsOnceAboveOneHalf) {
  for (const double mean : {0.0, 0.1, 0.2, 0.24}) {
    for (const double sd : {0.05, 0.3, 0.6, 1.0}) {
      double last = 0;
      for (int64_t pairs = 2; pairs < 150; ++pairs) {
        const double power = EquivalencePower(mean, sd, pairs, Margin(0.25));

        // 1e-9 for the error of the quadrature.
        if (last > 0.5) {
          EXPECT_GE(power, last - 1e-9) << mean << " " << sd;
        }
        last = power;
      }
    }
  }
}

TEST(PairsForPower, IsTheSmallestNumberThatSuffices) {
  for (const double sd : {0.1, 0.3, 1.0, 20.0}) {
    for (const double target : {0.6, 0.8, 0.99}) {
      EquivalenceOptions options = Margin(0.25);
      options.power = target;
      const int64_t pairs = PairsForPower(0.05, sd, options).value();

      EXPECT_GE(EquivalencePower(0.05, sd, pairs, options), target);
      if (pairs > 2) {
        EXPECT_LT(EquivalencePower(0.05, sd, pairs - 1, options), target);
      }
    }
  }
}

TEST(PairsForPower, IsEmptyWhenNoneSuffices) {
  EXPECT_FALSE(PairsForPower(0.25, 0.1, Margin(0.25)).has_value());
  EXPECT_FALSE(PairsForPower(-0.3, 0, Margin(0.25)).has_value());
  EXPECT_FALSE(PairsForPower(0, 1e6, Margin(0.25)).has_value());
}

// Above the margin by what makes a noncentral t exceed the quantile with the
// power asked for: the cdf is Boost's, good to some 1e-12 there.
TEST(DetectableDifference, FailsWithThePowerAskedFor) {
  for (const int64_t pairs : {2, 3, 12, 200}) {
    for (const double power : {0.6, 0.8, 0.99}) {
      EquivalenceOptions options = Margin(0.25);
      options.power = power;
      const double n = static_cast<double>(pairs);
      const double detectable = DetectableDifference(0.3, pairs, options);
      const double delta = (detectable - 0.25) / 0.3 * std::sqrt(n);

      EXPECT_NEAR(
          1 - NonCentralTCdf(StudentTQuantile(0.95, n - 1), n - 1, delta),
          power, 1e-9)
          << pairs;
    }
  }
}

TEST(DetectableDifference, IsTheMarginWithoutSpreadAndGrowsWithIt) {
  EXPECT_EQ(DetectableDifference(0, 4, Margin(0.25)), 0.25);
  EXPECT_LT(DetectableDifference(0.1, 4, Margin(0.25)),
            DetectableDifference(0.2, 4, Margin(0.25)));
  EXPECT_LT(DetectableDifference(0.1, 12, Margin(0.25)),
            DetectableDifference(0.1, 4, Margin(0.25)));
  EXPECT_THROW(DetectableDifference(0.1, 1, Margin(0.25)), Error);
  EXPECT_THROW(DetectableDifference(-1, 4, Margin(0.25)), Error);
}

}  // namespace
}  // namespace isoloss::stats::power_test
