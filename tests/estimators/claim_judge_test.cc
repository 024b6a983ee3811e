#include "isoloss/estimators/claim_judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::estimators::claim_judge_test {
namespace {

constexpr int64_t kSteps = 100;

/// An arm whose losses at steps 50 and 100 are these, one for each seed.
ArmCurves Arm(const std::string& name, const std::vector<double>& half,
              const std::vector<double>& end) {
  ArmCurves arm{.arm = name};
  for (size_t i = 0; i < end.size(); ++i) {
    arm.runs.push_back({.seed = static_cast<int64_t>(i) + 1,
                        .losses = {{50, half[i]}, {100, end[i]}}});
  }
  return arm;
}
ArmCurves Arm(const std::string& name, const std::vector<double>& end) {
  return Arm(name, end, end);
}
/// Of eight runs the first `diverged` did.
ArmCurves Diverging(const std::string& name, size_t diverged) {
  ArmCurves arm = Arm(name, std::vector<double>(8, 2.0));
  for (size_t i = 0; i < diverged; ++i) arm.runs[i].diverged = true;
  return arm;
}

Contrast GapContrast(Relation relation, double bound) {
  return {.name = "gap",
          .says = "It is so.",
          .relation = relation,
          .bound = bound,
          .cell = "cell",
          .arm = "a",
          .reference = "b",
          .other_cell = "cell",
          .other_arm = "c",
          .other_reference = "b"};
}

ClaimResult Judge(const std::vector<Contrast>& contrasts,
                  const std::vector<ArmCurves>& arms, int64_t looks = 1) {
  Claim claim;
  claim.contrasts = contrasts;
  claim.looks = looks;
  const std::vector<CellCurves> cells = {
      {.name = "cell", .steps = kSteps, .arms = arms}};
  return JudgeClaim(claim, cells);
}

TEST(JudgeClaim, GivesTheTIntervalOfPairedGaps) {
  // Gaps of 1, 2 and 3 %: mean 2, sd 1; t_{0.975, 2} = 4.302653.
  const ClaimResult result =
      Judge({GapContrast(Relation::kAbove, 0)},
            {Arm("a", {1.01, 2.04, 4.12}), Arm("b", {1, 2, 4})});

  const ContrastResult& contrast = result.contrasts.at(0);
  const double half = 4.302652729911275 / std::sqrt(3);
  EXPECT_NEAR(contrast.estimate, 2, 1e-12);
  EXPECT_NEAR(contrast.lower, 2 - half, 1e-9);
  EXPECT_NEAR(contrast.upper, 2 + half, 1e-9);
  EXPECT_EQ(contrast.seeds, 3u);
  EXPECT_EQ(contrast.verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(result.verdict, ClaimVerdict::kUndecided);
}

TEST(JudgeClaim, CountsTheContrastsThatDecide) {
  Contrast shown = GapContrast(Relation::kBelow, 0);
  shown.role = ContrastRole::kShown;
  const std::vector<ArmCurves> arms = {Arm("a", {1.01, 2.021, 4.04}),
                                       Arm("b", {1, 2, 4})};

  const ClaimResult one = Judge({GapContrast(Relation::kAbove, 0)}, arms);
  const ClaimResult beside =
      Judge({GapContrast(Relation::kAbove, 0), shown}, arms);
  const ClaimResult two = Judge(
      {GapContrast(Relation::kAbove, 0), GapContrast(Relation::kAbove, -1)},
      arms);

  EXPECT_EQ(one.verdict, ClaimVerdict::kReproduced);
  // What is only shown lies on the other side, and counts for nothing.
  EXPECT_EQ(beside.contrasts[1].verdict, ClaimVerdict::kContradicted);
  EXPECT_EQ(beside.verdict, ClaimVerdict::kReproduced);
  EXPECT_EQ(beside.contrasts[0].lower, one.contrasts[0].lower);
  EXPECT_DOUBLE_EQ(two.confidence, 0.975);
  EXPECT_LT(two.contrasts[0].lower, one.contrasts[0].lower);
}

TEST(JudgeClaim, ContradictsByOneContrast) {
  const ClaimResult result = Judge(
      {GapContrast(Relation::kAbove, 0), GapContrast(Relation::kAbove, 2)},
      {Arm("a", {1.01, 2.0201, 4.04}), Arm("b", {1, 2, 4})});

  EXPECT_EQ(result.contrasts[0].verdict, ClaimVerdict::kReproduced);
  EXPECT_EQ(result.contrasts[1].verdict, ClaimVerdict::kContradicted);
  EXPECT_EQ(result.verdict, ClaimVerdict::kContradicted);
}

TEST(JudgeClaim, ReadsLossesAtTheirSharesOfTheRun) {
  // 1 % half-way and 3 % at the end, each with a spread of 1e-2 points.
  const std::vector<ArmCurves> arms = {
      Arm("a", {1.01, 2.0202, 4.04}, {1.0301, 2.06, 4.12}),
      Arm("b", {1, 2, 4})};
  Contrast half = GapContrast(Relation::kWithin, 1.5);
  half.at = 0.5;
  Contrast change = GapContrast(Relation::kAbove, 1);
  change.measure = Measure::kGapChange;
  change.from = 0.5;

  const ClaimResult result = Judge({half, change}, arms);

  EXPECT_NEAR(result.contrasts[0].estimate, 1, 0.01);
  EXPECT_NEAR(result.contrasts[1].estimate, 2, 0.01);
  EXPECT_EQ(result.contrasts[0].verdict, ClaimVerdict::kReproduced);
  EXPECT_EQ(result.contrasts[1].verdict, ClaimVerdict::kReproduced);
  half.at = 0.25;
  EXPECT_THROW(Judge({half}, arms), Error);
}

// Arm a lies 0.1 % above b, and c 3 %, each with a spread of 1e-2 points.
std::vector<ArmCurves> WithABadArm() {
  return {Arm("a", {1.001, 2.0022, 4.004}), Arm("c", {1.03, 2.0602, 4.12}),
          Arm("b", {1, 2, 4})};
}
Contrast Control(double bound) {
  Contrast control = GapContrast(Relation::kAbove, bound);
  control.name = "bad";
  control.arm = "c";
  control.role = ContrastRole::kControl;
  return control;
}

TEST(JudgeClaim, ReproducesWhatIsWithinABoundOnlyWithAControl) {
  const Contrast within = GapContrast(Relation::kWithin, 0.25);

  const ClaimResult alone = Judge({within}, WithABadArm());
  const ClaimResult seen = Judge({within, Control(0.25)}, WithABadArm());
  const ClaimResult unseen =
      Judge({within, Control(0.25), Control(3)}, WithABadArm());

  EXPECT_EQ(alone.contrasts[0].verdict, ClaimVerdict::kReproduced);
  EXPECT_EQ(alone.verdict, ClaimVerdict::kUndecided);
  EXPECT_NE(alone.note.find("no control shows"), std::string::npos);
  EXPECT_EQ(seen.verdict, ClaimVerdict::kReproduced);
  EXPECT_TRUE(seen.note.empty());
  EXPECT_DOUBLE_EQ(seen.confidence, 0.975);
  EXPECT_EQ(unseen.contrasts[2].verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(unseen.verdict, ClaimVerdict::kUndecided);
  EXPECT_NE(unseen.note.find("control bad does not lie above 3 %"),
            std::string::npos);
}

TEST(JudgeClaim, TakesNoControlOfAnotherUnit) {
  Contrast other = Control(0.25);
  other.measure = Measure::kInteraction;
  other.other_arm = "a";

  const ClaimResult result =
      Judge({GapContrast(Relation::kWithin, 0.25), other}, WithABadArm());

  EXPECT_EQ(result.contrasts[1].verdict, ClaimVerdict::kReproduced);
  EXPECT_EQ(result.verdict, ClaimVerdict::kUndecided);
  EXPECT_NE(result.note.find("no control shows"), std::string::npos);
}

TEST(JudgeClaim, IsNotContradictedByAControl) {
  const ClaimResult result =
      Judge({GapContrast(Relation::kWithin, 0.25), Control(5)}, WithABadArm());

  EXPECT_EQ(result.contrasts[1].verdict, ClaimVerdict::kContradicted);
  EXPECT_EQ(result.verdict, ClaimVerdict::kUndecided);
  // Nor does it save a claim.
  EXPECT_EQ(
      Judge({GapContrast(Relation::kWithin, 0.05), Control(1)}, WithABadArm())
          .verdict,
      ClaimVerdict::kContradicted);
}

TEST(JudgeClaim, WidensIntervalsByTheNumberOfLooks) {
  // t_{0.9875, 2} = 6.205347, of 5 % for two looks.
  const ClaimResult result =
      Judge({GapContrast(Relation::kAbove, 0)},
            {Arm("a", {1.01, 2.04, 4.12}), Arm("b", {1, 2, 4})}, 2);

  EXPECT_DOUBLE_EQ(result.confidence, 0.975);
  EXPECT_NEAR(result.contrasts.at(0).upper, 2 + 6.205347 / std::sqrt(3), 1e-5);
}

TEST(JudgeClaim, TakesTheDifferenceOfDifferences) {
  // a lies 3 % above b, c 1 %: 2 points, whose spread the seeds share.
  Contrast contrast = GapContrast(Relation::kWithin, 1);
  contrast.measure = Measure::kInteraction;

  const ClaimResult result =
      Judge({contrast}, {Arm("a", {1.03, 2.08, 4.2001}),
                         Arm("c", {1.01, 2.04, 4.12}), Arm("b", {1, 2, 4})});

  EXPECT_NEAR(result.contrasts[0].estimate, 2, 0.01);
  EXPECT_EQ(result.verdict, ClaimVerdict::kContradicted);
}

TEST(JudgeClaim, ComparesRatesOfDivergence) {
  Contrast contrast = GapContrast(Relation::kAbove, 0);
  contrast.measure = Measure::kDivergence;

  const ClaimResult all =
      Judge({contrast}, {Diverging("a", 8), Diverging("b", 0)});
  const ClaimResult half =
      Judge({contrast}, {Diverging("a", 4), Diverging("b", 0)});
  const ClaimResult less =
      Judge({contrast}, {Diverging("a", 0), Diverging("b", 8)});

  // 1 / binomial(16, 8).
  EXPECT_NEAR(*all.contrasts[0].p, 1.0 / 12870, 1e-12);
  EXPECT_EQ(all.verdict, ClaimVerdict::kReproduced);
  EXPECT_GT(all.contrasts[0].lower, 0);
  EXPECT_DOUBLE_EQ(all.contrasts[0].upper, 100);
  // binomial(8, 4) / binomial(16, 4) = 70 / 1820, above 0.025.
  EXPECT_NEAR(*half.contrasts[0].p, 70.0 / 1820, 1e-12);
  EXPECT_EQ(half.verdict, ClaimVerdict::kUndecided);
  EXPECT_LT(half.contrasts[0].lower, 0);
  EXPECT_EQ(less.verdict, ClaimVerdict::kContradicted);
}

TEST(JudgeClaim, FindsDivergenceAbsentBelowThePublishedRate) {
  Contrast contrast = GapContrast(Relation::kAbove, 0);
  contrast.measure = Measure::kDivergence;
  const std::vector<ArmCurves> arms = {Diverging("a", 0), Diverging("b", 0)};

  // Clopper and Pearson's end of 0 of 8 is 1 - 0.025^(1/8) = 36.9 %.
  contrast.published_size = 37;
  EXPECT_EQ(Judge({contrast}, arms).verdict, ClaimVerdict::kAbsent);
  contrast.published_size = 36;
  const ClaimResult result = Judge({contrast}, arms);
  EXPECT_EQ(result.verdict, ClaimVerdict::kUndecided);
  EXPECT_GT(result.seeds_needed.value(), 8u);
  EXPECT_EQ(result.seeds_needed, SeedsNeeded(contrast, std::nullopt, 0.05));
}

/// Arms a to d lie -1, 0, 0.5 and 2 % above ref, each with a spread of 0.01
/// points; the interval of 3 seeds is 0.025 points wide on either side.
TEST(JudgeClaim, EndsByTheWorstOfItsContrasts) {
  const std::vector<double> base = {1, 2, 4};
  const auto arm = [&](const std::string& name, double percent) {
    std::vector<double> losses;
    for (size_t i = 0; i < base.size(); ++i) {
      losses.push_back(
          base[i] * (1 + percent / 100 + 1e-4 * (static_cast<double>(i) - 1)));
    }
    return Arm(name, losses);
  };
  const std::vector<ArmCurves> arms = {arm("a", -1), arm("b", 0), arm("c", 0.5),
                                       arm("d", 2), Arm("ref", base)};
  const auto verdict = [&](const std::string& names) {
    std::vector<Contrast> contrasts;
    for (const char name : names) {
      Contrast contrast = GapContrast(Relation::kAbove, 0);
      contrast.arm = std::string(1, name);
      contrast.reference = "ref";
      contrast.published_size = 1;
      contrasts.push_back(contrast);
    }
    return Judge(contrasts, arms).verdict;
  };

  EXPECT_EQ(verdict("d"), ClaimVerdict::kReproduced);
  EXPECT_EQ(verdict("cd"), ClaimVerdict::kTooSmall);
  EXPECT_EQ(verdict("dbc"), ClaimVerdict::kAbsent);
  EXPECT_EQ(verdict("bacd"), ClaimVerdict::kContradicted);
}

TEST(JudgeClaim, FindsNothingAbsentWithABlindControl) {
  Contrast claim = GapContrast(Relation::kAbove, 0);
  claim.published_size = 1;
  const std::vector<ArmCurves> arms = {Arm("a", {1.0001, 2, 3.9996}),
                                       Arm("c", {1.03, 2.0602, 4.12}),
                                       Arm("b", {1, 2, 4})};
  Contrast control = GapContrast(Relation::kAbove, 2);
  control.name = "bad";
  control.arm = "c";
  control.role = ContrastRole::kControl;

  EXPECT_EQ(Judge({claim, control}, arms).verdict, ClaimVerdict::kAbsent);
  control.bound = 3;
  const ClaimResult blind = Judge({claim, control}, arms);
  EXPECT_EQ(blind.verdict, ClaimVerdict::kUndecided);
  EXPECT_NE(blind.note.find("Not absent here"), std::string::npos);
}

TEST(JudgeClaim, HoldsRatesOfDivergenceAgainstABound) {
  Contrast contrast = GapContrast(Relation::kAbove, 0);
  contrast.measure = Measure::kDivergence;
  const std::vector<ArmCurves> arms = {Diverging("a", 8), Diverging("b", 0)};

  // The ends of 8 of 8 and of 0 of 8 are 36.9 points off, so that the interval
  // begins at 100 - sqrt(2) * 36.94 = 47.76 points.
  contrast.bound = 47;
  const ClaimResult above = Judge({contrast}, arms);
  EXPECT_EQ(above.contrasts[0].verdict, ClaimVerdict::kReproduced);
  EXPECT_FALSE(above.contrasts[0].p.has_value());
  contrast.bound = 48;
  EXPECT_EQ(Judge({contrast}, arms).contrasts[0].verdict,
            ClaimVerdict::kUndecided);
}

TEST(JudgeClaim, DecidesNothingWithLossesThatAreNotFinite) {
  ArmCurves broken = Arm("a", {1.5, 3, 6});
  broken.runs[1].losses[1].second = std::numeric_limits<double>::infinity();
  ArmCurves ended = Arm("a", {1.5, 3, 6});
  ended.runs[2].losses.clear();
  ended.runs[2].diverged = true;

  for (const ArmCurves& arm : {broken, ended}) {
    const ClaimResult result =
        Judge({GapContrast(Relation::kAbove, 0)}, {arm, Arm("b", {1, 2, 4})});
    EXPECT_EQ(result.contrasts[0].seeds, 2u);
    EXPECT_EQ(result.contrasts[0].verdict, ClaimVerdict::kUndecided);
    EXPECT_FALSE(result.contrasts[0].note.empty());
  }
}

TEST(JudgeClaim, NeedsTwoSeedsAndRunsOfEachArm) {
  const ClaimResult one = Judge({GapContrast(Relation::kAbove, 0)},
                                {Arm("a", {1.5}), Arm("b", {1})});
  EXPECT_EQ(one.verdict, ClaimVerdict::kUndecided);
  EXPECT_THROW(Judge({GapContrast(Relation::kAbove, 0)}, {Arm("a", {1, 2})}),
               Error);
}

/// L = 1 + 20 N^-0.3 + 30 D^-0.3; the arm has 0.64 N.
TEST(JudgeClaim, FindsTheFactorOfParameters) {
  std::vector<CellCurves> cells;
  for (const double parameters : {1e5, 3e5, 1e6}) {
    for (const double tokens : {1e5, 4e5, 16e5}) {
      CellCurves cell{.name = std::to_string(cells.size()),
                      .steps = kSteps,
                      .parameters = parameters,
                      .tokens = tokens};
      std::vector<double> arm;
      std::vector<double> reference;
      for (const double noise : {-1e-4, 0.0, 1e-4}) {
        const double data = 1 + 30 * std::pow(tokens, -0.3) + noise;
        reference.push_back(data + 20 * std::pow(parameters, -0.3));
        arm.push_back(data + 20 * std::pow(0.64 * parameters, -0.3) +
                      noise / 2);
      }
      cell.arms = {Arm("a", arm), Arm("b", reference)};
      cells.push_back(std::move(cell));
    }
  }
  Contrast contrast = GapContrast(Relation::kBelow, 1);
  contrast.measure = Measure::kParameterFactor;
  Claim claim;
  claim.contrasts = {contrast};

  const ClaimResult result = JudgeClaim(claim, cells);
  // Too few sizes for a law.
  const ClaimResult few = JudgeClaim(claim, std::span(cells).first(5));

  // The grid of exponents, of steps of 0.02, holds the true ones.
  EXPECT_NEAR(result.contrasts[0].estimate, 0.64, 0.02);
  EXPECT_LT(result.contrasts[0].lower, 0.64);
  EXPECT_GT(result.contrasts[0].upper, 0.64);
  EXPECT_EQ(result.verdict, ClaimVerdict::kReproduced);
  EXPECT_EQ(few.verdict, ClaimVerdict::kUndecided);
  EXPECT_FALSE(few.contrasts[0].note.empty());
  // Six sizes make a law, but not the one of all nine.
  std::vector<CellCurves> begun = cells;
  for (CellCurves& cell : begun) cell.seeds = 3;
  begun.back().arms.clear();
  begun[7].arms.pop_back();
  const ClaimResult part = JudgeClaim(claim, begun);
  EXPECT_TRUE(std::isnan(part.contrasts[0].estimate));
  EXPECT_EQ(part.contrasts[0].verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(part.contrasts[0].note.rfind("9 of its runs", 0), 0u);
  EXPECT_EQ(part.verdict, ClaimVerdict::kUndecided);
  // So many looks take more resamples than usual.
  claim.looks = 10;
  claim.contrasts.resize(6, contrast);
  EXPECT_LT(JudgeClaim(claim, cells).contrasts[0].lower,
            result.contrasts[0].lower);
}

TEST(JudgeClaim, DecidesNothingWhileRunsAreMissing) {
  Claim claim;
  claim.contrasts = {GapContrast(Relation::kAbove, 0)};
  std::vector<CellCurves> cells = {
      {.name = "cell",
       .steps = kSteps,
       .seeds = 3,
       .arms = {Arm("a", {2.1, 2.11, 2.12}), Arm("b", {2, 2.01, 2.02})}}};
  EXPECT_EQ(JudgeClaim(claim, cells).verdict, ClaimVerdict::kReproduced);
  cells[0].seeds = 8;
  const ClaimResult result = JudgeClaim(claim, cells);
  EXPECT_EQ(result.verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(result.contrasts[0].note.rfind("10 of its runs", 0), 0u);
}

// Three gaps of 0, 0.01 and -0.01 % have a half width of 4.303 * 0.01 / sqrt(3)
// = 0.025 %, so an effect of 0.1 % is excluded.
TEST(JudgeClaim, FindsNothingAbsentWhileRunsAreMissing) {
  Contrast contrast = GapContrast(Relation::kAbove, 0);
  contrast.published_size = contrast.equivalence = 0.1;
  Claim claim;
  claim.contrasts = {contrast};
  std::vector<CellCurves> cells = {
      {.name = "cell",
       .steps = kSteps,
       .seeds = 3,
       .arms = {Arm("a", {2, 2.0002, 1.9998}), Arm("b", {2, 2, 2})}}};

  const ClaimResult all = JudgeClaim(claim, cells);
  cells[0].seeds = 4;
  const ClaimResult pilot = JudgeClaim(claim, cells);

  EXPECT_EQ(all.verdict, ClaimVerdict::kAbsent);
  EXPECT_EQ(pilot.verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(pilot.contrasts[0].verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(pilot.contrasts[0].note.rfind("2 of its runs are missing", 0), 0u);
  // The pilot says how many seeds see the effect, but that the three of these
  // would have done is no answer while they decide nothing.
  EXPECT_EQ(pilot.contrasts[0].spread, all.contrasts[0].spread);
  EXPECT_EQ(pilot.contrasts[0].seeds_needed, all.contrasts[0].seeds_needed);
  EXPECT_TRUE(pilot.contrasts[0].seeds_needed.has_value());
  EXPECT_FALSE(pilot.seeds_needed.has_value());
}

}  // namespace
}  // namespace isoloss::estimators::claim_judge_test
