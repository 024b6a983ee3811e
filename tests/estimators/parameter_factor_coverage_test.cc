// How often 90 % intervals hold a factor of parameters that is known.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "isoloss/estimators/parameter_factor.h"
#include "simulated_ladder.h"

namespace isoloss::estimators::parameter_factor_coverage_test {
namespace {

// Parameters worth 0.8 of the baseline's: u = A (0.8^-alpha - 1). Four seeds
// are what experiments/published takes. Of 500 trials of probability 0.90 the
// share lies within 3 standard errors, 3 sqrt(0.9 0.1 / 500) = 0.04, of it.
TEST(ParameterFactor, CoversTheFactorByFourSeeds) {
  constexpr int kTrials = 500;
  const RelativeLaw law = [](const Size& size, std::mt19937_64&) {
    return 100 * 20 * (std::pow(0.8, -0.34) - 1) *
           std::pow(size.parameters, -0.34) / UsualLoss(size);
  };
  const SimulatedLadder ladder{.sizes = {{0.34e6, 0.34e6},
                                         {0.34e6, 1.36e6},
                                         {0.34e6, 6.8e6},
                                         {1.3e6, 1.3e6},
                                         {1.3e6, 5.2e6},
                                         {3e6, 3e6}},
                               .seeds = 4,
                               .spread_nats = 0.002};
  std::mt19937_64 random(1);
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto found = ParameterFactor(
        DrawCells(ladder, law, random),
        {.resamples = 199, .seed = static_cast<uint64_t>(trial)});
    covered += found && found->Holds(0.8) ? 1 : 0;
  }
  const double share = static_cast<double>(covered) / kTrials;
  std::printf("factor: %.3f\n", share);
  EXPECT_GE(share, 0.86);
  EXPECT_LE(share, 0.94);
}

}  // namespace
}  // namespace isoloss::estimators::parameter_factor_coverage_test
