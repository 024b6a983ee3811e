#include <gtest/gtest.h>

#include "isoloss/stats/bootstrap.h"
#include "simulation.h"

namespace isoloss::stats::bootstrap_coverage_test {
namespace {

constexpr int kTrials = 600;

int Covered(double phi) {
  Normal normal("bootstrap");
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto interval = StationaryBootstrapMean(
        Autoregression(normal, 200, phi),
        {.resamples = 199, .seed = static_cast<uint64_t>(trial)});
    covered += interval.lower <= 0 && 0 <= interval.upper ? 1 : 0;
  }
  return covered;
}

// A 95 % interval falls short of 95 % the more, the stronger the dependence.
// The rates are those of the header, found with 6000 trials of another stream,
// whose own error is less than half of one sigma here.
TEST(StationaryBootstrapMean, FallsShortOfItsLevelByAsMuchAsDocumented) {
  ExpectRate(Covered(0), kTrials, 0.946);
  ExpectRate(Covered(0.5), kTrials, 0.897);
  ExpectRate(Covered(0.8), kTrials, 0.847);
}

}  // namespace
}  // namespace isoloss::stats::bootstrap_coverage_test
