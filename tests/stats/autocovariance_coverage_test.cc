#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/stats/autocovariance.h"
#include "isoloss/stats/summary.h"
#include "simulation.h"

namespace isoloss::stats::autocovariance_coverage_test {
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

}  // namespace
}  // namespace isoloss::stats::autocovariance_coverage_test
