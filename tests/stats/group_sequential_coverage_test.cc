#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/group_sequential.h"
#include "isoloss/stats/power.h"
#include "isoloss/stats/student_t.h"
#include "simulation.h"

namespace isoloss::stats::group_sequential_coverage_test {
namespace {

constexpr int kTrials = 20000;
constexpr double kMargin = 0.25;
/// Of level L5 between seeds of the demo, in percent.
constexpr double kSpread = 0.337;

/// Numbers of pairs at which a sample is looked at; the plan ends at `largest`.
struct Looks {
  std::vector<int64_t> counts;
  int64_t largest = 0;
};

struct Decisions {
  int passed = 0;
  int failed = 0;
  double mean_pairs = 0;
};

std::vector<double> LevelsOf(const Looks& looks, Spending spending) {
  LookLevels levels(spending, 0.05, looks.largest);
  std::vector<double> all;
  for (const int64_t count : looks.counts) all.push_back(levels.Next(count));
  return all;
}

/// Equivalence tests of growing samples with these levels, up to the first
/// that decides.
Decisions Simulate(const Looks& looks, const std::vector<double>& levels,
                   double mean, double sd) {
  Normal normal("looks");
  Decisions decisions;
  std::vector<double> quantiles;
  for (size_t k = 0; k < levels.size(); ++k) {
    quantiles.push_back(
        levels[k] > 0 ? -StudentTQuantile(
                            levels[k], static_cast<double>(looks.counts[k] - 1))
                      : std::numeric_limits<double>::infinity());
  }
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> sample;
    Equivalence outcome = Equivalence::kUndecided;
    for (size_t k = 0; k < levels.size() && outcome == Equivalence::kUndecided;
         ++k) {
      while (static_cast<int64_t>(sample.size()) < looks.counts[k]) {
        sample.push_back(mean + sd * normal.Next());
      }
      const Summary summary = Summarize(sample);
      const double half = quantiles[k] * summary.sd /
                          std::sqrt(static_cast<double>(summary.count));
      outcome = WhereIs(summary.mean - half, summary.mean + half,
                        {.margin = kMargin});
    }
    decisions.passed += outcome == Equivalence::kInside ? 1 : 0;
    decisions.failed += outcome == Equivalence::kOutside ? 1 : 0;
    decisions.mean_pairs += static_cast<double>(sample.size()) / kTrials;
  }
  return decisions;
}

/// Small and large samples, early and dense looks, looks that nobody planned
/// ({12, 14, 24} of a plan that says {12, 18, 24}: it ends at 24 as well) and
/// some behind the plan's end.
const Looks kPlans[] = {{{12}, 12},         {{2, 3}, 3},
                        {{2, 4, 6}, 6},     {{3, 4, 5, 6}, 6},
                        {{4, 12}, 12},      {{12, 18, 24}, 24},
                        {{12, 14, 24}, 24}, {{4, 8, 12, 16, 20, 24}, 24},
                        {{12, 16}, 12},     {{4, 8, 12, 16, 40}, 12}};

// On the margin, with its other end far away, all looks together pass with
// probability alpha, and fail with alpha: 5 % within 0.62 percentage points,
// four standard deviations of 20 000 trials. The error of the levels, below
// 0.5 % of 5 %, is nothing beside it.
TEST(LookLevels, AllLooksTogetherPassOnTheMarginWithAlpha) {
  for (const Looks& looks : kPlans) {
    for (const auto spending : {Spending::kOBrienFleming, Spending::kPocock}) {
      SCOPED_TRACE(looks.counts.size());
      const Decisions decisions =
          Simulate(looks, LevelsOf(looks, spending), kMargin, 0.01);
      ExpectRate(decisions.passed, kTrials, 0.05);
      ExpectRate(decisions.failed, kTrials, 0.05);
    }
  }
}

// With a spread above the margin both of its ends matter: rarer than alpha.
TEST(LookLevels, AllLooksTogetherPassOnTheMarginAtMostWithAlpha) {
  for (const Looks& looks : kPlans) {
    const Decisions decisions = Simulate(
        looks, LevelsOf(looks, Spending::kOBrienFleming), kMargin, kSpread);
    ExpectRateAtMost(decisions.passed, kTrials, 0.05);
  }
}

// What looks at full alpha do, at the demo's spread: 7.3 % of trials pass with
// two looks, 13.4 % with six. The tests above would see it.
TEST(LookLevels, LooksAtFullAlphaPassTooOften) {
  const auto passed = [](const Looks& looks) {
    const std::vector<double> naive(looks.counts.size(), 0.05);
    return Simulate(looks, naive, kMargin, kSpread).passed;
  };

  ExpectRate(passed({{4, 12}, 12}), kTrials, 0.073);
  ExpectRate(passed({{4, 8, 12, 16, 20, 24}, 24}), kTrials, 0.134);
}

// Why level L5 spends as O'Brien and Fleming did: with looks at 12, 18 and 24
// pairs and no difference it passes almost as often as with the single look at
// 24 (0.945), after 19.7 pairs on average; Pocock's spending takes 17.4 pairs,
// but leaves 12 % undecided in place of 7 %, at the price of all 24 pairs.
TEST(LookLevels, KeepTheirPowerWithoutADifference) {
  const Looks looks{{12, 18, 24}, 24};
  const double single =
      EquivalencePower(0, kSpread, 24, {.margin = kMargin, .alpha = 0.05});
  const Decisions obrien =
      Simulate(looks, LevelsOf(looks, Spending::kOBrienFleming), 0, kSpread);
  const Decisions pocock =
      Simulate(looks, LevelsOf(looks, Spending::kPocock), 0, kSpread);

  ExpectRate(obrien.passed, kTrials, 0.929);
  ExpectRate(pocock.passed, kTrials, 0.879);
  EXPECT_LT(single - static_cast<double>(obrien.passed) / kTrials, 0.02);
  EXPECT_LT(obrien.mean_pairs, 20);
}

}  // namespace
}  // namespace isoloss::stats::group_sequential_coverage_test
