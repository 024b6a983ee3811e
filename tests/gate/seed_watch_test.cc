#include "isoloss/gate/seed_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "isoloss/base/error.h"
#include "sample_evidence.h"
#include "stats/simulation.h"

namespace isoloss::gate::seed_watch_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kTrials = 5000;
/// Of final windows between seeds, in percent: what long runs of the demo show.
constexpr double kSpread = 0.34;

/// Of so many jobs of twelve pairs, how many a watch stops, and how many of
/// these after at most six.
struct Stopped {
  int ever = 0;
  int early = 0;
};

Stopped Simulate(double mean, double between, int candidates = 1) {
  const Policy policy;
  const WatchLevels levels = LevelsOfWatch(policy, 12, candidates);
  stats::Normal normal("jobs");
  Stopped stopped;
  for (int trial = 0; trial < kTrials; ++trial) {
    int pairs = 0;
    for (int arm = 0; arm < candidates && pairs == 0; ++arm) {
      SeedWatch watch(policy, levels);
      for (int pair = 1; pair <= 12 && pairs == 0; ++pair) {
        if (!watch.Add(mean + between * normal.Next()).empty()) pairs = pair;
      }
    }
    stopped.ever += pairs != 0 ? 1 : 0;
    stopped.early += pairs != 0 && pairs <= 6 ? 1 : 0;
  }
  return stopped;
}

// At most 1 % of jobs without a difference, also with three candidates. Rates
// of 5000 jobs are known to within 0.56 percentage points (four standard
// deviations at 1 %), so that 1 % is kept if fewer than 0.4 % are stopped.
TEST(SeedWatch, StopsHardlyAnyJobWithoutADifference) {
  EXPECT_LT(Simulate(0, kSpread).ever, 0.004 * kTrials);
  EXPECT_LT(Simulate(0, kSpread, 3).ever, 0.004 * kTrials);
  EXPECT_LT(Simulate(0, 3 * kSpread).ever, 0.004 * kTrials);
}

// On the margin, where half of alpha, that of one side, is spent.
TEST(SeedWatch, StopsJobsOnTheMarginWithHalfOfAlpha) {
  stats::ExpectRate(Simulate(0.25, kSpread).ever, kTrials, 0.005);
  stats::ExpectRate(Simulate(-0.25, 0.01).ever, kTrials, 0.005);
}

// +3 % and -3 %: nearly all jobs, long before the twelfth pair. What is more
// than four standard deviations above 0.9 is above it.
TEST(SeedWatch, StopsABadJobEarly) {
  const double least = 0.9 + stats::FourSigma(0.9, kTrials);
  EXPECT_GT(Simulate(3, kSpread).early, least * kTrials);
  EXPECT_GT(Simulate(-3, kSpread).early, least * kTrials);
}

TEST(SeedWatch, OneSidedLetsABetterCandidateGoOn) {
  Policy policy;
  policy.one_sided = true;
  const WatchLevels levels = LevelsOfWatch(policy, 12, 1);
  SeedWatch better(policy, levels);
  SeedWatch worse(policy, levels);
  std::string reason;
  for (int pair = 0; pair < 12; ++pair) {
    const double noise = 0.01 * pair;
    EXPECT_THAT(better.Add(-3 + noise), IsEmpty());
    if (reason.empty()) reason = worse.Add(3 + noise);
  }
  EXPECT_THAT(reason, HasSubstr("beyond +0.25 %"));
}

TEST(LevelsOfWatch, OfManyPairsAreAFew) {
  const WatchLevels levels = LevelsOfWatch({}, 1000, 1);
  EXPECT_LE(levels.size(), 32);
  EXPECT_EQ(levels.begin()->first, 32);
  EXPECT_THAT(LevelsOfWatch({}, 1, 1), IsEmpty());
  Policy policy;
  policy.min_seeds = 5;
  EXPECT_EQ(LevelsOfWatch(policy, 12, 1).begin()->first, 5);
}

runlog::StepRow Row(int64_t step, double loss) {
  return {.step = step, .loss_nats = loss, .grad_norm = 1};
}

/// Feeds steps until the watch aborts; returns its reason.
std::string Watch(PairWatch& watch, int64_t steps,
                  const std::function<double(int64_t)>& baseline,
                  const std::function<double(int64_t)>& candidate) {
  for (int64_t step = 1; step <= steps; ++step) {
    const std::string reason =
        watch.Add(Row(step, baseline(step)), Row(step, candidate(step)));
    if (!reason.empty()) return reason;
  }
  return "";
}

double Falling(int64_t step) { return 2 + 3 / static_cast<double>(step); }

TEST(PairWatch, MeasuresWhatL5Tests) {
  const Policy policy;  // a window of the last fifth
  PairWatch watch(policy, 100);
  // 1 % worse in the window, 50 % before it.
  const auto candidate = [](int64_t step) {
    return Falling(step) * (step <= 80 ? 1.5 : 1.01);
  };

  EXPECT_THAT(Watch(watch, 99, Falling, candidate), IsEmpty());
  EXPECT_FALSE(watch.window_percent().has_value());
  watch.Add(Row(100, 2), Row(100, 2.02));

  EXPECT_NEAR(watch.window_percent().value(), 1, 1e-9);
}

TEST(PairWatch, StopsWhatKnowsLessThanUntrained) {
  const Policy policy;
  PairWatch watch(policy, 1000);
  const auto diverges = [](int64_t step) {
    return step <= 200 ? Falling(step) : 5.5;
  };

  EXPECT_THAT(Watch(watch, 1000, Falling, diverges), HasSubstr("diverges"));
  EXPECT_EQ(watch.step(), 220) << "after a whole batch";
}

TEST(PairWatch, LetsAHardBeginningPass) {
  const Policy policy;
  // Both rise above their first loss; the candidate is 0.5 % above.
  const auto rises = [](int64_t step) { return step == 1 ? 5.0 : 6.0; };
  const auto higher = [&](int64_t step) { return 1.005 * rises(step); };
  PairWatch watch(policy, 100);
  EXPECT_THAT(Watch(watch, 100, rises, higher), IsEmpty());
}

TEST(PairWatch, StopsAtOnceAtWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const runlog::StepRow good = Row(1, 3);
  runlog::StepRow bad_loss = good;
  bad_loss.loss_nats = nan;
  runlog::StepRow bad_norm = good;
  bad_norm.grad_norm = 1 / 0.0;
  runlog::StepRow bad_gradient = good;
  bad_gradient.nonfinite_gradients = 1;

  for (const auto& bad : {bad_loss, bad_norm, bad_gradient}) {
    for (const bool swap : {false, true}) {
      const Policy policy;
      PairWatch watch(policy, 10);
      const std::string reason =
          swap ? watch.Add(bad, good) : watch.Add(good, bad);
      EXPECT_THAT(reason, HasSubstr(swap ? "baseline" : "candidate"));
    }
  }
}

TEST(PairWatch, RefusesStepsThatDoNotBelongTogether) {
  const Policy policy;
  PairWatch watch(policy, 10);
  watch.Add(Row(1, 3), Row(1, 3));

  EXPECT_THROW(watch.Add(Row(2, 3), Row(3, 3)), Error);
  EXPECT_THROW(watch.Add(Row(1, 3), Row(1, 3)), Error);
}

// Three pairs, 3 % off, with next to no spread: the interval of two pairs is
// beyond the margin already.
TEST(SequentialLevel, ReportsWhereAWatchWouldHaveStopped) {
  TwoArms arms(3);
  for (int seed = 0; seed < 3; ++seed) {
    auto& losses = arms.Candidate(seed).log.steps.loss_nats;
    for (double& loss : losses) loss *= 1.03 + 1e-7 * seed;
  }
  const compare::Pairing pairing = arms.Pair();

  const Judgement judgement =
      Judge({.pairing = &pairing}, {}, {.climb_all = true});

  const auto measure = std::find_if(
      judgement.measures.begin(), judgement.measures.end(),
      [](const Measure& m) { return m.name == "sequential_abort"; });
  ASSERT_NE(measure, judgement.measures.end());
  EXPECT_EQ(measure->value, 2);
  EXPECT_THAT(measure->evidence, HasSubstr("beyond +-0.25 %"));
}

}  // namespace
}  // namespace isoloss::gate::seed_watch_test
