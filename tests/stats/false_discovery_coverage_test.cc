#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isoloss/stats/false_discovery.h"
#include "simulation.h"

namespace isoloss::stats::false_discovery_coverage_test {
namespace {

constexpr int kTrials = 4000;
constexpr int kTests = 20;
constexpr int kTrue = 15;  // hypotheses that are true, the first ones

/// Mean share of false discoveries at 0.2, with z-tests whose errors share a
/// common part. The shares lie in [0, 1], so their standard deviation is at
/// most sqrt(mean (1 - mean)): FourSigma holds.
double FalseDiscoveryRate(double correlation) {
  Normal normal("discoveries");
  double shares = 0;
  std::vector<double> p_values(kTests);
  for (int trial = 0; trial < kTrials; ++trial) {
    const double common = normal.Next() * std::sqrt(correlation);
    for (int i = 0; i < kTests; ++i) {
      const double z = common + normal.Next() * std::sqrt(1 - correlation) +
                       (i < kTrue ? 0 : 3);
      p_values[static_cast<size_t>(i)] = std::erfc(z / std::sqrt(2.0)) / 2;
    }
    const auto adjusted = BenjaminiHochberg(p_values);
    int found = 0;
    int falsely = 0;
    for (int i = 0; i < kTests; ++i) {
      if (adjusted[static_cast<size_t>(i)] > 0.2) continue;
      ++found;
      falsely += i < kTrue ? 1 : 0;
    }
    if (found > 0) shares += static_cast<double>(falsely) / found;
  }
  return shares / kTrials;
}

// Independent: exactly q times the share of true hypotheses.
TEST(BenjaminiHochberg, HasItsFalseDiscoveryRate) {
  EXPECT_NEAR(FalseDiscoveryRate(0), 0.15, FourSigma(0.15, kTrials));
}

TEST(BenjaminiHochberg, KeepsItUnderPositiveDependence) {
  EXPECT_LE(FalseDiscoveryRate(0.7), 0.15 + FourSigma(0.15, kTrials));
}

}  // namespace
}  // namespace isoloss::stats::false_discovery_coverage_test
