#include <gtest/gtest.h>

#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/power.h"
#include "simulation.h"

namespace isoloss::stats::equivalence_coverage_test {
namespace {

constexpr int kTrials = 2000;

/// Samples of `pairs` differences that pass, and that fail.
struct Outcomes {
  int passed = 0;
  int failed = 0;
  int covered = 0;  ///< the interval holds the true mean
};

Outcomes Simulate(double mean, double sd, int pairs,
                  const EquivalenceOptions& options) {
  Normal normal("equivalence");
  Outcomes outcomes;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Summary sample = Summarize(normal.Sample(pairs, mean, sd));
    const EquivalenceResult result = TestEquivalence(sample, options);
    outcomes.passed += result.outcome == Equivalence::kInside ? 1 : 0;
    outcomes.failed += result.outcome == Equivalence::kOutside ? 1 : 0;
    outcomes.covered += result.lower <= mean && mean <= result.upper ? 1 : 0;
  }
  return outcomes;
}

const EquivalenceOptions kOptions{.margin = 0.25};

TEST(TestEquivalence, IntervalCoversTheTrueMeanAtItsLevel) {
  for (const int pairs : {2, 4, 12}) {
    ExpectRate(Simulate(0.3, 0.1, pairs, kOptions).covered, kTrials, 0.90);
  }
}

// On the margin, with the other bound far away, the chance of a pass is alpha,
// and so is that of a fail.
TEST(TestEquivalence, PassesOnTheMarginWithProbabilityAlpha) {
  const Outcomes outcomes = Simulate(0.25, 0.01, 4, kOptions);

  ExpectRate(outcomes.passed, kTrials, 0.05);
  ExpectRate(outcomes.failed, kTrials, 0.05);
}

// With a spread as large as the margin both bounds matter, and a pass on the
// margin is rarer than alpha.
TEST(TestEquivalence, PassesAtItsExactPower) {
  for (const double mean : {0.1, 0.25, -0.3}) {
    for (const double sd : {0.05, 0.2}) {
      for (const int pairs : {2, 6}) {
        ExpectRate(Simulate(mean, sd, pairs, kOptions).passed, kTrials,
                   EquivalencePower(mean, sd, pairs, kOptions));
      }
    }
  }
}

TEST(TestEquivalence, PassesAtItsExactPowerOneSided) {
  const EquivalenceOptions options{.margin = 0.25, .one_sided = true};
  for (const double mean : {-0.4, 0.15}) {
    ExpectRate(Simulate(mean, 0.2, 6, options).passed, kTrials,
               EquivalencePower(mean, 0.2, 6, options));
  }
}

TEST(RequiredPairs, ReachesThePromisedPowerAndOnePairLessDoesNot) {
  const Summary truth{.count = 100, .mean = 0.15, .sd = 0.12};
  const auto pairs = static_cast<int>(RequiredPairs(truth, kOptions).value());
  const double power = EquivalencePower(0.15, 0.12, pairs, kOptions);

  EXPECT_GE(power, 0.8);
  EXPECT_LT(EquivalencePower(0.15, 0.12, pairs - 1, kOptions), 0.8);
  ExpectRate(Simulate(0.15, 0.12, pairs, kOptions).passed, kTrials, power);
}

// That the interval may also lie below the margin's other end adds less than
// 1e-6 to the rate here.
TEST(DetectableDifference, FailsAtItsRate) {
  for (const double sd : {0.05, 0.3}) {
    for (const int pairs : {3, 12}) {
      const double detectable = DetectableDifference(sd, pairs, kOptions);

      ExpectRate(Simulate(detectable, sd, pairs, kOptions).failed, kTrials,
                 kOptions.power);
      ExpectRate(Simulate(-detectable, sd, pairs, kOptions).failed, kTrials,
                 kOptions.power);
    }
  }
}

}  // namespace
}  // namespace isoloss::stats::equivalence_coverage_test
