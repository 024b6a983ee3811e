#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isoloss/stats/max_t.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/tolerance_limit.h"
#include "simulation.h"

namespace isoloss::stats::max_t_coverage_test {
namespace {

constexpr int kTrials = 1000;
constexpr int kRuns = 19;
constexpr int kStatistics = 20;

struct Alarms {
  int threshold = 0;
  int p_value = 0;
};

/// False alarms on runs that are like the null runs. A run's statistics share a
/// common part; `power` bends their tails (1: normal).
Alarms FalseAlarms(double correlation, double power) {
  Normal normal("family");
  const auto add_run = [&](std::vector<double>& values) {
    const double common = normal.Next() * std::sqrt(correlation);
    for (int i = 0; i < kStatistics; ++i) {
      const double z = common + normal.Next() * std::sqrt(1 - correlation);
      values.push_back(std::copysign(std::pow(std::fabs(z), power), z));
    }
  };
  Alarms alarms;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> null;
    for (int run = 0; run < kRuns; ++run) add_run(null);
    std::vector<double> observed;
    add_run(observed);
    const MaxT test(null, std::vector<double>(kStatistics, 1e-9),
                    {.coverage = 0.9, .confidence = 0.8});
    const MaxTResult result = test.Test(observed);
    alarms.threshold += result.exceeding.empty() ? 0 : 1;
    alarms.p_value += result.p_value <= 0.1 ? 1 : 0;
  }
  return alarms;
}

// The rank of an exchangeable run is uniform, so of 20 runs 2 have p <= 0.1:
// exactly 0.1, whatever the dependence and the distribution.
TEST(MaxT, PValueHasItsFamilyWiseLevelUnderDependence) {
  for (const double correlation : {0.0, 0.5, 0.95}) {
    for (const double power : {1.0, 3.0}) {
      ExpectRate(FalseAlarms(correlation, power).p_value, kTrials, 0.1);
    }
  }
}

// If log max |z| is normal, the rate of runs above the limit, over ensembles
// and runs, is P(t_{n-1} > k / sqrt(1 + 1/n)): 0.0435 here, less than
// 1 - coverage because of the confidence. A left-out run is a little larger
// than an observed one and keeps the rate below that. It must not be so low
// that the limit is idle.
TEST(MaxT, ThresholdKeepsTheFamilyWiseRateUnderDependence) {
  const double k = ToleranceFactor(kRuns, 0.9, 0.8);
  const double nominal =
      StudentTUpperTail(k / std::sqrt(1 + 1.0 / kRuns), kRuns - 1);
  ASSERT_LT(nominal, 0.1);
  for (const double correlation : {0.0, 0.5, 0.95}) {
    const int alarms = FalseAlarms(correlation, 1).threshold;

    ExpectRateAtMost(alarms, kTrials, nominal);
    EXPECT_GT(alarms, 0.1 * nominal * kTrials) << correlation;
  }
}

}  // namespace
}  // namespace isoloss::stats::max_t_coverage_test
