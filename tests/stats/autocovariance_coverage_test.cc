#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/stats/autocovariance.h"
#include "isoloss/stats/summary.h"
#include "simulation.h"

namespace isoloss::stats {
namespace {

constexpr int kTrials = 4000;
constexpr int kValues = 200;

int Covered(double phi) {
  Normal normal("hac");
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto values = Autoregression(normal, kValues, phi);
    const double half_width =
        1.959963984540054 * NeweyWestError(values).standard_error;
    covered += std::fabs(Mean(values)) <= half_width ? 1 : 0;
  }
  return covered;
}

// A 95 % interval falls short of 95 % the more, the stronger the dependence.
// The rates are those of the header, found with 40 000 trials of another
// stream, whose own error is a third of the band's.
TEST(NeweyWestError, FallsShortOfItsLevelByAsMuchAsDocumented) {
  ExpectRate(Covered(0), kTrials, 0.937);
  ExpectRate(Covered(0.5), kTrials, 0.908);
  ExpectRate(Covered(0.8), kTrials, 0.842);
}

// Without dependence to allow for, a known lag of 0 leaves the normal interval
// in place of the t interval: P(|t_199| <= 1.96) = 0.9486.
TEST(NeweyWestError, CoversAtItsLevelWithoutLags) {
  Normal normal("white");
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto values = normal.Sample(kValues);
    const double half_width =
        1.959963984540054 * NeweyWestError(values, 0).standard_error;
    covered += std::fabs(Mean(values)) <= half_width ? 1 : 0;
  }

  ExpectRate(covered, kTrials, 0.9486);
}

int Rejected(double phi, int64_t lags) {
  Normal normal("ljung");
  int rejected = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto values = Autoregression(normal, kValues, phi);
    rejected += LjungBox(values, lags).p_value <= 0.05 ? 1 : 0;
  }
  return rejected;
}

// Chi-squared is the limit for long series; at 200 values and 10 lags the level
// is known to be too high by up to 0.01 (Ljung and Box 1978, table 1 has 0.056
// for n = 100).
TEST(LjungBox, RejectsWhiteSeriesAtAboutItsLevel) {
  for (const int64_t lags : {1, 10}) {
    const double rate = static_cast<double>(Rejected(0, lags)) / kTrials;

    EXPECT_GE(rate, 0.05 - FourSigma(0.05, kTrials)) << lags;
    EXPECT_LE(rate, 0.06 + FourSigma(0.06, kTrials)) << lags;
  }
}

// rho_1 = 0.3 of 200 values lies 0.3 sqrt(200) = 4.2 standard errors from 0:
// power Phi(4.2 - 1.96) = 0.99 before the loss of a shrunken estimate.
TEST(LjungBox, SeesAnAutoregression) {
  EXPECT_GT(Rejected(0.3, 1), 0.95 * kTrials);
}

}  // namespace
}  // namespace isoloss::stats
