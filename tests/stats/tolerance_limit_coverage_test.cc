#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/stats/summary.h"
#include "isoloss/stats/tolerance_limit.h"
#include "simulation.h"

namespace isoloss::stats::tolerance_limit_coverage_test {
namespace {

constexpr int kTrials = 10000;

// mean + k sd is above the 95 % quantile, 1.6449, with the confidence stated.
TEST(ToleranceFactor, CoversTheQuantileWithItsConfidence) {
  for (const int count : {3, 12, 40}) {
    for (const double confidence : {0.5, 0.9, 0.99}) {
      Normal normal("tolerance");
      const double k = ToleranceFactor(count, 0.95, confidence);
      int covered = 0;
      for (int trial = 0; trial < kTrials; ++trial) {
        const Summary sample = Summarize(normal.Sample(count));
        covered += sample.mean + k * sample.sd >= 1.6448536269514722 ? 1 : 0;
      }

      ExpectRate(covered, kTrials, confidence);
    }
  }
}

// With 19 null values alpha = 1/20, 2/20 ... are met exactly.
TEST(OrderStatisticPValue, RejectsAtItsLevel) {
  Normal normal("rank");
  int one = 0;
  int three = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const double p = OrderStatisticPValue(normal.Sample(19), normal.Next());
    one += p <= 0.05 ? 1 : 0;
    three += p <= 0.15 ? 1 : 0;
  }

  ExpectRate(one, kTrials, 0.05);
  ExpectRate(three, kTrials, 0.15);
}

}  // namespace
}  // namespace isoloss::stats::tolerance_limit_coverage_test
