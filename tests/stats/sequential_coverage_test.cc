#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/stats/sequential.h"
#include "simulation.h"

namespace isoloss::stats {
namespace {

constexpr int kTrials = 4000;
constexpr int kBatches = 200;

/// Runs that are ever aborted, with this true mean and a spread of 1.
int Aborted(const SequentialOptions& options, double mean) {
  Normal normal("stream");
  int aborted = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    SequentialMonitor monitor(options);
    for (int batch = 0; batch < kBatches; ++batch) {
      monitor.Add(mean + normal.Next());
    }
    aborted += monitor.state().alarm == Alarm::kNone ? 0 : 1;
  }
  return aborted;
}

// Ville's inequality is an upper bound. On the margin the e-value of one side
// is a martingale that ends at 0, so that alpha is lost only by overshooting
// 1 / alpha and by stopping after 200 batches: more than a third of it must be
// seen. Two-sided, the other side contributes next to nothing: half.
TEST(SequentialMonitor, EProcessRarelyAbortsARunOnTheMargin) {
  SequentialOptions options{.margin = 1, .alpha = 0.05, .sd = 1.0};
  const int two_sided = Aborted(options, 1);
  options.one_sided = true;
  const int one_sided = Aborted(options, 1);

  ExpectRateAtMost(one_sided, kTrials, 0.05);
  ExpectRateAtMost(two_sided, kTrials, 0.025);
  EXPECT_GT(one_sided, 0.05 / 3 * kTrials);
  EXPECT_GT(two_sided, 0.025 / 3 * kTrials);
}

TEST(SequentialMonitor, EProcessAbortsABadRun) {
  const SequentialOptions options{.margin = 1, .alpha = 0.05, .sd = 1.0};

  EXPECT_EQ(Aborted(options, 0), 0);
  EXPECT_EQ(Aborted(options, -2), kTrials);
}

/// Runs whose confidence sequence ever misses the true mean.
int Missed(double alpha, int64_t first_look) {
  Normal normal("sequence");
  int missed = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    SequentialMonitor monitor(
        {.margin = 1, .alpha = alpha, .first_look = first_look});
    bool miss = false;
    for (int batch = 0; batch < kBatches; ++batch) {
      const SequentialState& state = monitor.Add(normal.Next());
      miss |= state.lower > 0 || state.upper < 0;
    }
    missed += miss ? 1 : 0;
  }
  return missed;
}

// Asymptotic: no finite sample promises alpha. The rates are those of the
// header, found with 20 000 trials of another stream, whose own error is less
// than half of one sigma here.
TEST(SequentialMonitor, ConfidenceSequenceMissesAsOftenAsDocumented) {
  ExpectRate(Missed(0.05, 20), kTrials, 0.037);
  ExpectRate(Missed(0.01, 20), kTrials, 0.011);
  ExpectRate(Missed(0.05, 10), kTrials, 0.057);
}

// Montgomery, table 9.3: two-sided sums with slack 1/2 exceed 4 once in 168
// values. Run lengths are nearly geometric, their standard deviation nearly
// their mean: 4 sigma of the mean are 4 * 168 / sqrt(trials).
TEST(Cusum, RaisesFalseAlarmsAsOftenAsPublished) {
  Normal normal("cusum");
  constexpr int kAlarms = 4000;
  int64_t values = 0;
  for (int alarm = 0; alarm < kAlarms; ++alarm) {
    Cusum cusum(false);
    while (cusum.value() <= 4) {
      cusum.Add(normal.Next());
      ++values;
    }
  }

  EXPECT_NEAR(static_cast<double>(values) / kAlarms, 168,
              4 * 168 / std::sqrt(kAlarms));
}

// The rate of false aborts follows: 1 - exp(-50 / 168) of 50 batches, but for
// the warm-up from S = 0, which makes it smaller by up to 4 / 168.
TEST(SequentialMonitor, CusumAbortsAtTheRateOfItsLimit) {
  Normal normal("aborts");
  int aborted = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    SequentialMonitor monitor({.margin = 9, .sd = 1.0, .cusum_limit = 4.0});
    for (int batch = 0; batch < 50; ++batch) monitor.Add(normal.Next());
    aborted += monitor.state().alarm == Alarm::kCusum ? 1 : 0;
  }
  const double rate = static_cast<double>(aborted) / kTrials;
  const double expected = 1 - std::exp(-50.0 / 168);

  EXPECT_LE(rate, expected + FourSigma(expected, kTrials));
  EXPECT_GE(rate, expected - 5.0 / 168 - FourSigma(expected, kTrials));
}

}  // namespace
}  // namespace isoloss::stats
