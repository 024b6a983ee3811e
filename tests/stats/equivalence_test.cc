#include "isoloss/stats/equivalence.h"

#include <gtest/gtest.h>

#include <boost/math/distributions/binomial.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::stats {
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
  EXPECT_EQ(at(0.2).required_pairs, 2);
  EXPECT_EQ(at(0.25).outcome, Equivalence::kOutside);
}

TEST(TestEquivalence, NeverDecidesWithoutTwoFinitePairs) {
  for (const Summary& differences :
       {Summary{0, kNan, kNan}, Summary{1, 0.0, kNan}, Summary{1, 9.0, kNan},
        Summary{4, kNan, kNan}, Summary{4, 0.0, kNan}}) {
    const auto result = TestEquivalence(differences, Margin(0.25));

    EXPECT_EQ(result.outcome, Equivalence::kUndecided);
    EXPECT_FALSE(result.required_pairs.has_value());
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

// sd / room = 0.240416 / 0.13 = 1.84935. From printed tables,
// n = 23: (1.717 + 0.858) * 1.84935 = 4.762, squared 22.7 <= 23;
// n = 22: (1.721 + 0.859) * 1.84935 = 4.771, squared 22.8 >  22.
TEST(RequiredPairs, IsTheSmallestNumberThatSuffices) {
  const Summary differences{.count = 2, .mean = 0.12, .sd = 0.240416};

  EXPECT_EQ(RequiredPairs(differences, Margin(0.25)), 23);
}

// docs/gate.md, section 6: mean 0.056 %, sd 0.062 % need 2 to 4 pairs. By table
// n = 3: (2.920 + 1.061) * 0.062 / 0.194 = 1.27, squared 1.6 <= 3;
// n = 2: (6.314 + 1.376) * 0.062 / 0.194 = 2.46, squared 6.0 >  2.
TEST(RequiredPairs, MatchesThePrototypesFigure) {
  const Summary differences{.count = 12, .mean = 0.056, .sd = 0.062};

  EXPECT_EQ(RequiredPairs(differences, Margin(0.25)), 3);
}

TEST(RequiredPairs, IsMoreThanAnUndecidedTestHad) {
  for (int64_t count = 2; count < 40; ++count) {
    for (const double sd : {0.01, 0.1, 0.5, 2.0}) {
      const Summary differences{.count = count, .mean = 0.2, .sd = sd};
      const auto result = TestEquivalence(differences, Margin(0.25));
      if (result.outcome != Equivalence::kUndecided) continue;

      EXPECT_GT(result.required_pairs.value(), count);
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

/// Standard normal numbers by Box and Muller.
class Normal {
 public:
  explicit Normal(const char* name) : rng_(7, StreamId(name)) {}
  double Next() {
    const double radius = std::sqrt(-2 * std::log(1 - rng_.Uniform(index_)));
    const double angle = 2 * std::numbers::pi * rng_.Uniform(index_ + 1);
    index_ += 2;
    return radius * std::cos(angle);
  }

 private:
  CounterRng rng_;
  uint64_t index_ = 0;
};

/// True if `expected` lies in the Clopper-Pearson interval of hits / trials at
/// 99.98 %.
bool Agrees(int hits, int trials, double expected) {
  using Binomial = boost::math::binomial_distribution<double>;
  return Binomial::find_lower_bound_on_p(trials, hits, 1e-4) <= expected &&
         expected <= Binomial::find_upper_bound_on_p(trials, hits, 1e-4);
}

constexpr int kTrials = 10000;

TEST(TestEquivalence, IntervalCoversTheTrueMeanAtItsLevel) {
  for (const int pairs : {2, 4, 12}) {
    Normal normal("coverage");
    int covered = 0;
    std::vector<double> sample(static_cast<size_t>(pairs));
    for (int trial = 0; trial < kTrials; ++trial) {
      for (double& value : sample) value = 0.3 + 0.1 * normal.Next();
      const auto result = TestEquivalence(Summarize(sample), Margin(0.25));
      covered += result.lower <= 0.3 && 0.3 <= result.upper ? 1 : 0;
    }

    EXPECT_TRUE(Agrees(covered, kTrials, 0.90)) << pairs << " " << covered;
  }
}

// On the margin, with the other bound far away, the chance of a pass is alpha.
TEST(TestEquivalence, PassesOnTheMarginWithProbabilityAlpha) {
  Normal normal("size");
  int passed = 0;
  int failed = 0;
  std::vector<double> sample(4);
  for (int trial = 0; trial < kTrials; ++trial) {
    for (double& value : sample) value = 0.25 + 0.01 * normal.Next();
    const auto result = TestEquivalence(Summarize(sample), Margin(0.25));
    passed += result.outcome == Equivalence::kInside ? 1 : 0;
    failed += result.outcome == Equivalence::kOutside ? 1 : 0;
  }

  EXPECT_TRUE(Agrees(passed, kTrials, 0.05)) << passed;
  EXPECT_TRUE(Agrees(failed, kTrials, 0.05)) << failed;
}

// The formula replaces the non-central t by a shifted one, which is a little
// pessimistic or optimistic in small samples; 0.75 to 0.85 is what "about 0.8"
// promises from 10 pairs on.
TEST(RequiredPairs, GivesAboutThePromisedPower) {
  const Summary truth{.count = 100, .mean = 0.15, .sd = 0.12};
  const int64_t pairs = RequiredPairs(truth, Margin(0.25)).value();
  Normal normal("power");
  int passed = 0;
  std::vector<double> sample(static_cast<size_t>(pairs));
  for (int trial = 0; trial < kTrials; ++trial) {
    for (double& value : sample) value = 0.15 + 0.12 * normal.Next();
    const auto result = TestEquivalence(Summarize(sample), Margin(0.25));
    passed += result.outcome == Equivalence::kInside ? 1 : 0;
  }

  EXPECT_GE(pairs, 10);
  EXPECT_GT(passed, 0.75 * kTrials);
  EXPECT_LT(passed, 0.85 * kTrials);
}

}  // namespace
}  // namespace isoloss::stats
