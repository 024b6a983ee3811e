#include "isoloss/estimators/gap_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "simulated_ladder.h"

namespace isoloss::estimators::gap_line_test {
namespace {

/// Three sizes, each ten times the tokens of the one before, and losses of 2
/// nats, so that 0.02 nats are 1 %.
std::vector<GapCell> ThreeCells() {
  std::vector<GapCell> cells;
  for (const double tokens : {1e6, 1e7, 1e8}) {
    cells.push_back({.name = "cell",
                     .size = {1e6, tokens, 0.5e6},
                     .gaps = {0.02, 0.04},
                     .baseline = {2, 2}});
  }
  return cells;
}

TEST(MeanGap, IsInPercentOfTheLossOfItsSeed) {
  const GapCell cell{
      .name = "cell", .size = {}, .gaps = {0.02, 0.04}, .baseline = {2, 4}};

  const GapEstimate found = MeanGap(cell);

  EXPECT_EQ(found.value, 1);
  EXPECT_EQ(found.error, 0);
  EXPECT_EQ(found.Interval(0.9).lower, 1);
}

// 1 % and 2 %: the mean 1.5, its error sqrt(0.5 / 2) = 0.5, and t of 0.95 with
// one degree of freedom is tan(0.45 pi) = 6.314. Sums round in the last digits.
TEST(MeanGap, HasStudentsInterval) {
  const GapEstimate found = MeanGap(ThreeCells()[0]);

  EXPECT_NEAR(found.value, 1.5, 1e-12);
  EXPECT_NEAR(found.error, 0.5, 1e-12);
  EXPECT_NEAR(found.degrees_of_freedom, 1, 1e-12);
  EXPECT_NEAR(found.Interval(0.9).upper, 1.5 + 0.5 * 6.313752, 1e-6);
}

// Gaps of 1, 2 and 3 % in the three sizes: the line is 1 % a decade. At four
// decades beyond the first size its weights are 1/3 + 3 (-1, 0, 1) / 2.
TEST(LineAt, IsTheLeastSquaresLineOverTheDecades) {
  std::vector<GapCell> cells = ThreeCells();
  for (size_t i = 0; i < 3; ++i) {
    const double gap = 0.02 * static_cast<double>(i + 1);
    cells[i].gaps = {gap - 0.01, gap + 0.01};
  }
  // A seed's deviation is 0.5 %: errors of sqrt(0.5) / sqrt(2) = 0.5 each.
  const double at = cells[0].size.Flops() * 1e4;

  const GapEstimate line = LineAt(cells, at);
  const GapEstimate slope = LineSlope(cells);

  EXPECT_NEAR(line.value, 5, 1e-9);
  EXPECT_NEAR(slope.value, 1, 1e-9);
  const double weights[] = {1.0 / 3 - 1.5, 1.0 / 3, 1.0 / 3 + 1.5};
  double squares = 0;
  double fourths = 0;
  for (const double weight : weights) {
    squares += weight * weight;
    fourths += std::pow(weight, 4);
  }
  EXPECT_NEAR(line.error, 0.5 * std::sqrt(squares), 1e-9);
  EXPECT_NEAR(line.degrees_of_freedom, squares * squares / fourths, 1e-9);
  EXPECT_NEAR(slope.error, 0.5 * std::sqrt(0.5), 1e-9);
}

TEST(LineAt, CountsActiveParameters) {
  std::vector<GapCell> cells = ThreeCells();
  const double all = LineAt(cells, 3e14).value;
  // The first size is moved to where the second one is.
  cells[0].size.active_parameters = 5e6;
  cells[0].gaps = {0, 0.02};

  EXPECT_NE(LineAt(cells, 3e14).value, all);
  EXPECT_EQ(cells[0].size.Flops(), cells[1].size.Flops());
}

TEST(ConstantGap, WeighsEachSeedAlike) {
  std::vector<GapCell> cells = ThreeCells();
  cells.resize(2);
  cells[0].gaps = {0, 0, 0, 0, 0, 0};
  cells[0].baseline = {2, 2, 2, 2, 2, 2};

  // Two of eight seeds have 1.5 % in the mean.
  EXPECT_NEAR(ConstantGap(cells).value, 1.5 * 2 / 8, 1e-12);
}

TEST(GapDifference, HasTheErrorsOfBoth) {
  const std::vector<GapCell> cells = ThreeCells();

  const GapEstimate found = GapDifference(cells[0], cells[1]);

  EXPECT_EQ(found.value, 0);
  EXPECT_NEAR(found.error, 0.5 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(found.degrees_of_freedom, 2, 1e-12);
}

// Where seeds alone scatter, the square is an F variable with 10 and 372
// degrees of freedom, which lies between 0.15 and 2.97 in 99.8 %.
TEST(ScatterOfCells, IsNearOneOfALineOnly) {
  const SimulatedLadder ladder{.sizes = DefaultSizes(), .seeds = 32};
  std::mt19937_64 random(1);
  const double line =
      ScatterOfCells(DrawCells(ladder, EverywhereLaw(0.3), random)).value();
  // A gap of 1 % of every other size is 5 to 10 times a seed's spread.
  int size = 0;
  const RelativeLaw jagged = [&](const Size&, std::mt19937_64&) {
    return ++size % 2 == 0 ? 1.0 : 0.0;
  };
  const double other =
      ScatterOfCells(DrawCells(ladder, jagged, random)).value();

  EXPECT_GT(line * line, 0.15);
  EXPECT_LT(line * line, 2.97);
  EXPECT_GT(other, 5);
}

TEST(LineAt, RefusesTooLittle) {
  std::vector<GapCell> cells = ThreeCells();
  cells[1].gaps.resize(1);
  EXPECT_THROW(LineAt(cells, 1e15), Error);
  cells[1].gaps = {0, std::numeric_limits<double>::infinity()};
  EXPECT_THROW(LineAt(cells, 1e15), Error);
  cells = ThreeCells();
  for (GapCell& cell : cells) cell.size = cells[0].size;
  EXPECT_THROW(LineAt(cells, 1e15), Error);
  EXPECT_THROW(ConstantGap({}), Error);
  EXPECT_THROW(MeanGap(cells[0]).Interval(1), Error);
}

}  // namespace
}  // namespace isoloss::estimators::gap_line_test
