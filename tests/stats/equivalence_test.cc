#include "isoloss/stats/equivalence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/power.h"

namespace isoloss::stats::equivalence_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

EquivalenceOptions Margin(double margin) { return {.margin = margin}; }

// The worked example of R's TOSTER, TOSTone(m = 0.54, mu = 0.5, sd = 1.2,
// n = 100, bounds +-0.3 sd, alpha = 0.05), written as differences from mu. With
// t_{0.95,99} = 1.6604 (printed table) the 90 % interval is 0.04 -+ 0.199248.
TEST(TestEquivalence, MatchesAWorkedExample) {
  const Summary differences{.count = 100, .mean = 0.04, .sd = 1.2};

  const auto result = TestEquivalence(differences, Margin(0.36));

  // Half a unit of the table's last digit times sd / sqrt(n).
  EXPECT_NEAR(result.lower, 0.04 - 0.199248, 0.5e-4 * 0.12);
  EXPECT_NEAR(result.upper, 0.04 + 0.199248, 0.5e-4 * 0.12);
  EXPECT_EQ(result.outcome, Equivalence::kInside);
}

TEST(TestEquivalence, HasThreeOutcomes) {
  // t_{0.95,3} = 2.353: half width 0.118 for sd 0.1 and four pairs.
  const auto outcome = [](double mean) {
    return TestEquivalence({.count = 4, .mean = mean, .sd = 0.1}, Margin(0.25))
        .outcome;
  };

  EXPECT_EQ(outcome(0.13), Equivalence::kInside);
  EXPECT_EQ(outcome(0.14), Equivalence::kUndecided);
  EXPECT_EQ(outcome(0.36), Equivalence::kUndecided);
  EXPECT_EQ(outcome(0.37), Equivalence::kOutside);
  EXPECT_EQ(outcome(-0.13), Equivalence::kInside);
  EXPECT_EQ(outcome(-0.14), Equivalence::kUndecided);
  EXPECT_EQ(outcome(-0.37), Equivalence::kOutside);
}

TEST(TestEquivalence, OneSidedOnlyMindsWorse) {
  EquivalenceOptions options = Margin(0.25);
  options.one_sided = true;
  const auto outcome = [&](double mean) {
    return TestEquivalence({.count = 4, .mean = mean, .sd = 0.1}, options)
        .outcome;
  };

  EXPECT_EQ(outcome(-5.0), Equivalence::kInside);
  EXPECT_EQ(outcome(0.14), Equivalence::kUndecided);
  EXPECT_EQ(outcome(0.37), Equivalence::kOutside);
}

// For one degree of freedom t_{1-alpha} = cot(pi alpha), so with sd = sqrt(2)
// the half width is 1 / (pi alpha) but for a relative (pi alpha)^2 / 3. Some
// 500 roundings of a double are 1e-13.
TEST(TestEquivalence, KnowsAlphasThatVanishBesideOne) {
  const auto result =
      TestEquivalence({.count = 2, .mean = 0, .sd = std::numbers::sqrt2},
                      {.margin = 1, .alpha = 1e-20});

  const double half_width = 1e20 / std::numbers::pi;
  EXPECT_NEAR(result.upper, half_width, 1e-13 * half_width);
  EXPECT_EQ(result.outcome, Equivalence::kUndecided);
}

TEST(TestEquivalence, WithoutSpreadTheIntervalIsAPoint) {
  const auto at = [](double mean) {
    return TestEquivalence({.count = 2, .mean = mean, .sd = 0}, Margin(0.25));
  };

  EXPECT_EQ(at(0.2).lower, 0.2);
  EXPECT_EQ(at(0.2).upper, 0.2);
  EXPECT_EQ(at(0.2).outcome, Equivalence::kInside);
  EXPECT_EQ(RequiredPairs({.count = 2, .mean = 0.2, .sd = 0}, Margin(0.25)), 2);
  EXPECT_EQ(at(0.25).outcome, Equivalence::kOutside);
}

TEST(TestEquivalence, NeverDecidesWithoutTwoFinitePairs) {
  for (const Summary& differences :
       {Summary{0, kNan, kNan}, Summary{1, 0.0, kNan}, Summary{1, 9.0, kNan},
        Summary{4, kNan, kNan}, Summary{4, 0.0, kNan}}) {
    const auto result = TestEquivalence(differences, Margin(0.25));

    EXPECT_EQ(result.outcome, Equivalence::kUndecided);
    EXPECT_FALSE(RequiredPairs(differences, Margin(0.25)).has_value());
  }
}

TEST(TestEquivalence, RejectsOptionsOutOfRange) {
  const Summary differences{.count = 4, .mean = 0, .sd = 1};

  EXPECT_THROW(TestEquivalence(differences, Margin(0)), Error);
  EXPECT_THROW(TestEquivalence(differences, Margin(kNan)), Error);
  EXPECT_THROW(TestEquivalence(differences, {.margin = 1, .alpha = 0.5}),
               Error);
  EXPECT_THROW(TestEquivalence(differences, {.margin = 1, .power = 0.5}),
               Error);
}

// Exact power, by EquivalencePower: 0.7906 with 22 pairs, 0.8071 with 23.
TEST(RequiredPairs, IsTheSmallestNumberThatSuffices) {
  const Summary differences{.count = 2, .mean = 0.12, .sd = 0.240416};

  EXPECT_EQ(RequiredPairs(differences, Margin(0.25)), 23);
  EXPECT_EQ(RequiredPairs(differences, Margin(0.25)),
            PairsForPower(0.12, 0.240416, Margin(0.25)));
  EXPECT_LT(EquivalencePower(0.12, 0.240416, 22, Margin(0.25)), 0.8);
}

// With mean 0.056 % and sd 0.062 % two pairs pass in half of all cases, three
// in 94 %.
TEST(RequiredPairs, MatchesThePrototypesFigure) {
  const Summary differences{.count = 12, .mean = 0.056, .sd = 0.062};

  EXPECT_EQ(RequiredPairs(differences, Margin(0.25)), 3);
}

// For every power from 0.7 on, as documented, at whatever alpha.
TEST(RequiredPairs, IsMoreThanAnUndecidedTestHad) {
  for (int64_t count = 2; count < 40; ++count) {
    for (const double sd : {0.01, 0.1, 0.5, 2.0}) {
      for (const double alpha : {1e-9, 0.05, 0.4}) {
        const Summary differences{.count = count, .mean = 0.2, .sd = sd};
        const EquivalenceOptions options{
            .margin = 0.25, .alpha = alpha, .power = 0.7};
        const auto result = TestEquivalence(differences, options);
        if (result.outcome != Equivalence::kUndecided) continue;
        const auto required = RequiredPairs(differences, options);
        if (!required.has_value()) continue;

        EXPECT_GT(*required, count);
      }
    }
  }
}

TEST(RequiredPairs, IsEmptyWhenNoneSuffices) {
  const Summary beyond{.count = 4, .mean = -0.25, .sd = 0.1};
  const Summary hopeless{.count = 4, .mean = 0.0, .sd = 1e6};
  const Summary better{.count = 4, .mean = -9, .sd = 0.1};

  EXPECT_FALSE(RequiredPairs(beyond, Margin(0.25)).has_value());
  EXPECT_FALSE(RequiredPairs(hopeless, Margin(0.25)).has_value());
  EXPECT_EQ(RequiredPairs(better, {.margin = 0.25, .one_sided = true}), 2);
}

}  // namespace
}  // namespace isoloss::stats::equivalence_test
