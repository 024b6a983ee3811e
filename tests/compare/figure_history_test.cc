#include "isoloss/compare/figure_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/synthetic_runs.h"

namespace isoloss::compare {
namespace {

using ::testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Losses of seeds 1, 2, ... at each commit, which are named by their places.
struct Losses {
  std::vector<std::vector<double>> at_commit;

  std::vector<std::string> Commits() const {
    std::vector<std::string> commits;
    for (size_t i = 0; i < at_commit.size(); ++i) {
      commits.push_back("commit " + std::to_string(i));
    }
    return commits;
  }

  std::vector<FigureRecord> Records() const {
    std::vector<FigureRecord> records;
    const std::vector<std::string> commits = Commits();
    for (size_t i = 0; i < commits.size(); ++i) {
      for (size_t seed = 0; seed < at_commit[i].size(); ++seed) {
        records.push_back({.commit = commits[i],
                           .arm = "a",
                           .seed = static_cast<int64_t>(seed) + 1,
                           .steps = 10,
                           .window = 2});
        records.back().figures[kLossFigure] = at_commit[i][seed];
      }
    }
    return records;
  }

  std::vector<FigurePoint> Follow(const MoveOptions& options = {}) const {
    return FollowFigure(Records(), Commits(), "a", kLossFigure, options).points;
  }

  std::vector<Movement> Movements(const MoveOptions& options = {}) const {
    std::vector<Movement> movements;
    for (const FigurePoint& point : Follow(options)) {
      movements.push_back(point.movement);
    }
    return movements;
  }
};

constexpr Movement kFirst = Movement::kFirst;
constexpr Movement kSame = Movement::kSameBits;
constexpr Movement kNotShown = Movement::kNotShown;
constexpr Movement kMoved = Movement::kMoved;
constexpr Movement kOther = Movement::kOther;

// Seeds lie 1 nat apart, far more than any change here: only pairs tell.
const std::vector<double> kBase = {4, 5, 6};

TEST(FollowFigure, CallsEqualBitsSameAndAMeanThatDidNotMoveNotShown) {
  // Changes of +1, -1 and 0 % of each seed: their mean is 0.
  const Losses losses = {{kBase, kBase, {4.04, 4.95, 6}}};

  EXPECT_THAT(losses.Movements(), ElementsAre(kFirst, kSame, kNotShown));
}

TEST(FollowFigure, NamesTheCommitOfAJumpAndItsInterval) {
  // +1, +1.1 and +0.9 % (mean 1, standard deviation 0.1): the 99 % interval is
  // 1 -+ t(0.995, 2) 0.1 / sqrt(3), and t(0.995, 2) = 9.92484 by tables.
  const std::vector<double> after = {4.04, 5.055, 6.054};
  const Losses losses = {{kBase, kBase, after, after}};

  const std::vector<FigurePoint> points = losses.Follow();

  EXPECT_THAT(losses.Movements(), ElementsAre(kFirst, kSame, kMoved, kSame));
  const FigurePoint& moved = points[2];
  EXPECT_EQ(moved.commit, "commit 2");
  EXPECT_EQ(moved.reference, 0);
  EXPECT_EQ(moved.shared_seeds, 3);
  EXPECT_FALSE(moved.gradual);
  // Decimals of the losses are rounded to 2^-50 or so.
  EXPECT_NEAR(moved.change.mean, 1, 1e-12);
  EXPECT_NEAR(moved.change.lower, 1 - 9.92484 * 0.1 / std::sqrt(3), 1e-5);
  EXPECT_NEAR(moved.change.upper, 1 + 9.92484 * 0.1 / std::sqrt(3), 1e-5);
  // Later commits are held against the one that moved.
  EXPECT_EQ(points[3].reference, 2);
}

TEST(FollowFigure, TakesChangesWithinTheToleranceForNone) {
  // As above the interval is [0.43, 1.57].
  const Losses losses = {{kBase, {4.04, 5.055, 6.054}}};

  EXPECT_THAT(losses.Movements({.tolerance = 0.42}),
              ElementsAre(kFirst, kMoved));
  EXPECT_THAT(losses.Movements({.tolerance = 0.44}),
              ElementsAre(kFirst, kNotShown));
  // The 99.9 % interval holds 0: t(0.9995, 2) = 31.6.
  EXPECT_THAT(losses.Movements({.alpha = 0.001}),
              ElementsAre(kFirst, kNotShown));
}

TEST(FollowFigure, SeesASlowDriftThatNoCommitShowsAlone) {
  // Each commit adds 0.1 % and noise of up to 0.1 % that is new each time.
  const Losses losses = {{{1, 1, 1, 1},
                          {1.002, 1.000, 1.001, 1.001},
                          {1.001, 1.003, 1.002, 1.002},
                          {1.004, 1.002, 1.003, 1.003}}};

  const std::vector<FigurePoint> points = losses.Follow();

  EXPECT_THAT(losses.Movements(),
              ElementsAre(kFirst, kNotShown, kNotShown, kMoved));
  EXPECT_TRUE(points[3].gradual);
  EXPECT_EQ(points[3].reference, 0);
}

TEST(FollowFigure, HasNoIntervalOfOneSeed) {
  const Losses losses = {{{4}, {4.4}, {4.4}}};

  EXPECT_THAT(losses.Movements(), ElementsAre(kFirst, kNotShown, kSame));
  EXPECT_THAT(losses.Movements({.tolerance = 9}),
              ElementsAre(kFirst, kMoved, kSame));
  EXPECT_THAT(losses.Movements({.tolerance = 11}),
              ElementsAre(kFirst, kNotShown, kSame));
}

TEST(FollowFigure, TakesTheEndOfFiniteValuesForAMove) {
  const Losses losses = {{kBase, {4, kNan, 6}, {4, kNan, 6}, kBase}};

  EXPECT_THAT(losses.Movements(), ElementsAre(kFirst, kMoved, kSame, kMoved));
}

TEST(FollowFigure, ComparesNothingAcrossConfigurationsOrOtherSeeds) {
  const Losses losses = {{kBase, kBase, kBase}};
  std::vector<FigureRecord> records = losses.Records();
  for (size_t i = 3; i < 6; ++i) records[i].config = "other";
  records[6].seed = 7;
  records.resize(7);

  const auto points =
      FollowFigure(records, losses.Commits(), "a", kLossFigure, {}).points;

  ASSERT_EQ(points.size(), 3);
  EXPECT_EQ(points[1].movement, kOther);
  EXPECT_EQ(points[2].movement, kOther);
  EXPECT_EQ(points[2].shared_seeds, 0);
}

TEST(FollowFigure, GoesByTheOrderOfTheCommitsThatItIsGiven) {
  const Losses losses = {{kBase, {4.4, 5.5, 6.6}}};
  const std::vector<std::string> reversed = {"commit 1", "commit 0", "none"};

  const auto points =
      FollowFigure(losses.Records(), reversed, "a", kLossFigure, {}).points;

  ASSERT_EQ(points.size(), 2);
  EXPECT_EQ(points[0].commit, "commit 1");
  EXPECT_EQ(points[1].movement, kMoved);
  EXPECT_LT(points[1].change.mean, 0);
}

TEST(FiguresOf, PairsEachRunWithItsBaselineOfTheSameSeedAndSteps) {
  std::vector<compare::Run> runs = {testing::SyntheticRun(false, 1, 0),
                                    testing::SyntheticRun(true, 1, 0.5),
                                    testing::SyntheticRun(true, 2, 0.5)};
  runs.push_back(testing::SyntheticRun(false, 2, 0));
  runs.back().log.steps.step.pop_back();

  const std::vector<FigureRecord> records = FiguresOf(runs, 0.2);

  ASSERT_EQ(records.size(), 4);
  EXPECT_EQ(records[0].figures[kDifferenceFigure], std::nullopt);
  ASSERT_TRUE(records[1].figures[kDifferenceFigure].has_value());
  EXPECT_NEAR(*records[1].figures[kDifferenceFigure], 0.5, 0.01);
  EXPECT_EQ(records[2].figures[kDifferenceFigure], std::nullopt);
  EXPECT_EQ(records[1].arm, runs[1].log.provenance.arm);
  EXPECT_EQ(records[1].content.size(), 16);
  EXPECT_NE(records[0].content, records[1].content);
}

TEST(FiguresOf, AreNotFiniteOfARunThatDidNotReachItsEnd) {
  std::vector<compare::Run> runs = {testing::SyntheticRun(false, 1, 0),
                                    testing::SyntheticRun(true, 1, 0.5)};
  const FigureRecord whole = FiguresOf(runs, 0.2)[1];
  runs[1].log.provenance.complete = false;
  runs[1].log.provenance.steps_planned = whole.steps;
  runs[1].log.steps.step.pop_back();
  runs[1].log.steps.loss_nats.pop_back();

  const FigureRecord ended = FiguresOf(runs, 0.2)[1];

  EXPECT_EQ(ended.steps, whole.steps);
  EXPECT_EQ(ended.window, whole.window);
  for (const size_t figure :
       {kLossFigure, kGradNormFigure, kDifferenceFigure}) {
    EXPECT_TRUE(std::isnan(ended.figures[figure].value_or(0))) << figure;
  }
}

TEST(FigureRecord, EqualsAnotherByTheBitsOfItsNumbers) {
  FigureRecord a = {.commit = "c", .arm = "a"};
  a.figures[kLossFigure] = kNan;
  FigureRecord b = a;
  EXPECT_TRUE(a == b);
  b.figures[kLossFigure] = 0.0;
  a.figures[kLossFigure] = -0.0;
  EXPECT_FALSE(a == b);
}

}  // namespace
}  // namespace isoloss::compare
