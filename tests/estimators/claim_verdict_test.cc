#include "isoloss/estimators/claim_verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/estimators/claim_power.h"

namespace isoloss::estimators::claim_verdict_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Contrast Above(std::optional<double> published,
               std::optional<double> equivalence = std::nullopt) {
  return {.name = "c",
          .relation = Relation::kAbove,
          .published_size = published,
          .equivalence = equivalence};
}

/// The same about the mirrored number, from a bound of 3.
Contrast Mirrored(Contrast contrast) {
  contrast.relation = Relation::kBelow;
  contrast.bound = 3;
  if (contrast.published_size)
    *contrast.published_size = 3 - *contrast.published_size;
  return contrast;
}

/// The verdicts that the definitions in words allow an interval.
std::vector<ClaimVerdict> Allowed(double a, double b, double published,
                                  double nothing) {
  const bool holds_zero = a <= 0 && 0 <= b;
  const bool below_published = b < published;
  const bool is_nothing = holds_zero && a > -nothing && b < nothing;
  std::vector<ClaimVerdict> allowed;
  if (!holds_zero && b < 0) allowed.push_back(ClaimVerdict::kContradicted);
  if (!holds_zero && a > 0 && !below_published)
    allowed.push_back(ClaimVerdict::kReproduced);
  if (!holds_zero && a > 0 && below_published)
    allowed.push_back(ClaimVerdict::kTooSmall);
  if (is_nothing) allowed.push_back(ClaimVerdict::kAbsent);
  if (holds_zero && !is_nothing) allowed.push_back(ClaimVerdict::kUndecided);
  return allowed;
}

/// Ends on, beside and beyond each number that the table compares them with.
const std::vector<double> kEnds = {-kInfinity, -2,  -1,       -0.75, -0.5,
                                   -0.25,      0,   0.25,     0.5,   0.75,
                                   1,          1.5, kInfinity};

TEST(VerdictOfInterval, HasOneRowForEachInterval) {
  for (const auto& [published, equivalence] :
       std::vector<std::pair<std::optional<double>, std::optional<double>>>{
           {std::nullopt, std::nullopt}, {1, std::nullopt}, {1, 0.5}, {1, 1}}) {
    const Contrast above = Above(published, equivalence);
    for (const double a : kEnds) {
      for (const double b : kEnds) {
        if (a > b) continue;
        SCOPED_TRACE(testing::Message() << a << " " << b);
        const auto allowed =
            Allowed(a, b, published.value_or(0),
                    equivalence.value_or(published.value_or(0)));
        ASSERT_EQ(allowed.size(), 1u);
        EXPECT_EQ(VerdictOfInterval(above, a, b), allowed[0]);
        EXPECT_EQ(VerdictOfInterval(Mirrored(above), 3 - b, 3 - a), allowed[0]);
      }
    }
  }
}

/// Rows by hand, so that code and definitions cannot be wrong alike.
TEST(VerdictOfInterval, DecidesTiesByHand) {
  const Contrast contrast = Above(1, 0.5);
  EXPECT_EQ(VerdictOfInterval(contrast, 0.1, 1), ClaimVerdict::kReproduced);
  EXPECT_EQ(VerdictOfInterval(contrast, 0.1, 0.999), ClaimVerdict::kTooSmall);
  EXPECT_EQ(VerdictOfInterval(contrast, 0, 0.499), ClaimVerdict::kAbsent);
  EXPECT_EQ(VerdictOfInterval(contrast, -0.499, 0), ClaimVerdict::kAbsent);
  EXPECT_EQ(VerdictOfInterval(contrast, 0, 0.5), ClaimVerdict::kUndecided);
  EXPECT_EQ(VerdictOfInterval(contrast, -0.5, 0.1), ClaimVerdict::kUndecided);
  EXPECT_EQ(VerdictOfInterval(contrast, -0.2, -0.1),
            ClaimVerdict::kContradicted);
}

TEST(VerdictOfInterval, KnowsWithin) {
  const Contrast within{.relation = Relation::kWithin, .bound = 1};
  for (const double a : kEnds) {
    for (const double b : kEnds) {
      if (a > b) continue;
      const bool inside = a > -1 && b < 1;
      const bool outside = a > 1 || b < -1;
      EXPECT_EQ(VerdictOfInterval(within, a, b),
                inside    ? ClaimVerdict::kReproduced
                : outside ? ClaimVerdict::kContradicted
                          : ClaimVerdict::kUndecided)
          << a << " " << b;
    }
  }
}

TEST(VerdictOfInterval, RefusesWhatIsNoInterval) {
  const double nan = std::nan("");
  for (const Contrast& contrast :
       {Above(1), Mirrored(Above(1)),
        Contrast{.relation = Relation::kWithin, .bound = 1}}) {
    EXPECT_THROW(VerdictOfInterval(contrast, nan, 1), Error);
    EXPECT_THROW(VerdictOfInterval(contrast, 0, nan), Error);
    EXPECT_THROW(VerdictOfInterval(contrast, 1, 0), Error);
  }
}

Contrast Rates(double published) {
  Contrast contrast = Above(published);
  contrast.measure = Measure::kDivergence;
  if (published < 0) contrast.relation = Relation::kBelow;
  return contrast;
}

TEST(PowerOf, IsThatOfThePairedTTest) {
  // One sample of 10, an effect of one standard deviation, 5 % two-sided:
  // 0.803, by noncentral t with 9 degrees of freedom (Cohen's tables: 0.80).
  EXPECT_NEAR(PowerOf(Above(0.5), 10, 0.5, 0.05)->published, 0.8031, 5e-5);
  EXPECT_EQ(PowerOf(Mirrored(Above(0.5)), 10, 0.5, 0.05)->published,
            PowerOf(Above(0.5), 10, 0.5, 0.05)->published);
  // Without a spread or a published size there is none.
  EXPECT_FALSE(PowerOf(Above(0.5), 10, std::nullopt, 0.05));
  EXPECT_FALSE(PowerOf(Above(std::nullopt), 10, 0.5, 0.05));
  EXPECT_FALSE(PowerOf(Above(0.5), 1, 0.5, 0.05));
}

TEST(PowerOf, IsExactForRates) {
  // At 8 runs of each, 5 against 0 is the least that Fisher's test sees at 2.5
  // %: binomial(8, 5) / binomial(16, 5) = 0.0128, and 4 against 0 gives 0.038.
  // At least 5 of 8 at a rate of 0.7: 0.80590 (binomial tables).
  EXPECT_NEAR(PowerOf(Rates(70), 8, std::nullopt, 0.05)->published, 0.80590,
              5e-6);
  EXPECT_NEAR(PowerOf(Rates(-70), 8, std::nullopt, 0.05)->published, 0.80590,
              5e-6);
  EXPECT_EQ(PowerOf(Rates(100), 8, std::nullopt, 0.05)->published, 1);
  // 0 of 8 leaves room for 1 - 0.025^(1/8) = 36.9 %.
  EXPECT_EQ(PowerOf(Rates(37), 8, std::nullopt, 0.05)->nothing, 1);
  EXPECT_EQ(PowerOf(Rates(36), 8, std::nullopt, 0.05)->nothing, 0);
}

TEST(SeedsNeeded, IsTheLeastNumberThatDecidesEitherWay) {
  const Contrast within{
      .relation = Relation::kWithin, .bound = 0.25, .published_size = 0.0};
  for (const Contrast& contrast : {Above(0.3), Above(0.3, 0.2), within}) {
    const size_t seeds = SeedsNeeded(contrast, 0.22, 0.0125).value();
    const auto enough = [&](size_t n) {
      const ClaimPower power = *PowerOf(contrast, n, 0.22, 0.0125);
      return power.published >= 0.8 && power.nothing >= 0.8;
    };
    EXPECT_TRUE(enough(seeds));
    EXPECT_FALSE(enough(seeds - 1));
  }
  EXPECT_FALSE(SeedsNeeded(Above(1e-3), 1, 0.05));
  EXPECT_FALSE(SeedsNeeded(Above(1), std::nullopt, 0.05));
}

}  // namespace
}  // namespace isoloss::estimators::claim_verdict_test
