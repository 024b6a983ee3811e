#include "isoloss/oracle/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace isoloss::oracle::comparison_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

runlog::OracleRow RowOf(Grid grid, float value, const Estimate& expected) {
  Comparison comparison(grid);
  comparison.Add(3, 4, value, expected);
  return comparison.Row();
}

TEST(Comparison, EqualNeedsTheBitsOfTheRoundedValue) {
  const runlog::OracleRow row = RowOf(Grid::kBf16, 1.0f, {.exact = 1.001});

  EXPECT_EQ(row.elements, 1);
  EXPECT_EQ(row.equal, 1);
  EXPECT_EQ(row.worst_ratio, 0.0);
  EXPECT_EQ(row.worst_row, -1);
  EXPECT_EQ(RowOf(Grid::kFp32, -0.0f, {.exact = 0.0}).equal, 1);
  EXPECT_EQ(RowOf(Grid::kFp32, kNan, {.exact = std::nan("")}).equal, 1);
}

TEST(Comparison, CountsWhatASampleLeavesOut) {
  const Sample sample(20, 10, 50, CounterRng(1, 1));
  Comparison seen(Grid::kBf16);
  sample.ForEach([&](size_t row, size_t column) {
    seen.AddExact(row, column, 1.0f, 1.0f);
  });
  seen.AddUnseen(sample);
  Comparison all(Grid::kBf16);
  all.AddExact(20, 0, 1.0f, 1.0f);
  all.AddUnseen(Sample(1, 1));
  Comparison fewer(Grid::kBf16);
  fewer.AddUnseen(30, 5);

  EXPECT_EQ(all.Row().draws, 0);
  EXPECT_EQ(all.Row().unseen_elements, 0);
  EXPECT_EQ(seen.tensor_elements(), 200);
  all.Merge(seen);
  EXPECT_EQ(all.tensor_elements(), 201);
  EXPECT_EQ(all.elements(), static_cast<int64_t>(sample.seen()) + 1);
  EXPECT_EQ(all.Row().draws, 50) << "what is seen as a whole has none";
  all.Merge(fewer);
  EXPECT_EQ(all.Row().draws, 5) << "wrong elements may all lie there";
  EXPECT_EQ(all.tensor_elements(), 231);
}

TEST(Comparison, FlipNeedsABoundThatReachesTheBoundary) {
  // The border to 1 + 2^-7 is 1 + 2^-8; the exact value is 1e-4 below it.
  const Estimate near = {.exact = 1.0 + 0x1p-8 - 1e-4, .bound = 2e-4};
  const Estimate far = {.exact = 1.0 + 0x1p-8 - 1e-4, .bound = 0.9e-4};
  const float above = 1.0f + 0x1p-7f;

  const runlog::OracleRow flip = RowOf(Grid::kBf16, above, near);
  EXPECT_EQ(flip.flips, 1);
  EXPECT_NEAR(flip.worst_ratio, 0.5, 1e-9);
  EXPECT_EQ(flip.worst_row, 3);
  EXPECT_EQ(flip.worst_column, 4);
  EXPECT_EQ(flip.worst_value, double{above});
  EXPECT_EQ(flip.worst_expected, near.exact);

  const runlog::OracleRow other = RowOf(Grid::kBf16, above, far);
  EXPECT_EQ(other.other, 1);
  EXPECT_NEAR(other.worst_ratio, 1.0 / 0.9, 1e-9);
}

TEST(Comparison, OnFp32sGridTheBoundIsOfTheValue) {
  const Estimate expected = {.exact = 1.0, .bound = 3 * 0x1p-23};

  // |value - exact| <= bound + half an ulp.
  EXPECT_EQ(RowOf(Grid::kFp32, 1.0f + 3 * 0x1p-23f, expected).flips, 1);
  EXPECT_EQ(RowOf(Grid::kFp32, 1.0f + 4 * 0x1p-23f, expected).other, 1);
}

TEST(Comparison, NothingExplainsAValueThatIsNotFinite) {
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    const runlog::OracleRow row =
        RowOf(Grid::kBf16, value, {.exact = 1.0, .bound = 1e30});
    EXPECT_EQ(row.other, 1) << value;
    EXPECT_EQ(row.worst_ratio, double{kInfinity}) << value;
  }
  EXPECT_EQ(RowOf(Grid::kBf16, 1.0f, {.exact = std::nan("")}).other, 1);
  EXPECT_EQ(RowOf(Grid::kBf16, 1.0f, {.exact = double{kInfinity}}).other, 1);
  // Where sums may have overflowed, infinity is one of the values.
  EXPECT_EQ(
      RowOf(Grid::kFp32, kInfinity, {.exact = 3.4e38, .bound = 1e37}).flips, 1);
}

TEST(Comparison, WithoutABoundOnlyTheValueItselfIsExplained) {
  const Estimate unbounded = {.exact = 1.0, .bound = double{kInfinity}};

  EXPECT_EQ(RowOf(Grid::kFp32, 1.0f, unbounded).equal, 1);
  EXPECT_EQ(RowOf(Grid::kFp32, 2.0f, unbounded).other, 1);
}

TEST(Comparison, ACopyMustHaveTheBits) {
  Comparison comparison(Grid::kBf16);
  comparison.AddExact(0, 0, 1.0f, 1.0f);
  comparison.AddExact(0, 1, kNan, -kNan);  // whatever its bits
  EXPECT_EQ(comparison.other(), 0);

  comparison.AddExact(0, 2, -0.0f, 0.0f);
  comparison.AddExact(0, 3, 1.0f, 1.0f + 0x1p-23f);
  comparison.AddExact(0, 4, kNan, 1.0f);

  const runlog::OracleRow row = comparison.Row();
  EXPECT_EQ(row.elements, 5);
  EXPECT_EQ(row.equal, 2);
  EXPECT_EQ(row.other, 3);
  EXPECT_EQ(row.worst_column, 4);
}

TEST(Comparison, ExpectsFlipsByTheDistanceToBothBoundaries) {
  // One standard deviation below the border of 1: P(N > 1) = 0.1587; the other
  // border is too far.
  const double noise = 1e-5;
  EXPECT_NEAR(
      RowOf(Grid::kBf16, 1.0f, {.exact = 1.0 + 0x1p-8 - noise, .noise = noise})
          .expected_flips,
      0.1587, 1e-4);
  // 2^-25 below and 2^-24 above are the borders of 1 in FP32.
  EXPECT_NEAR(
      RowOf(Grid::kFp32, 1.0f, {.exact = 1.0, .noise = 0x1p-24}).expected_flips,
      0.1587 + 0.3085, 2e-4);
  EXPECT_EQ(RowOf(Grid::kBf16, 1.0f, {.exact = 1.0}).expected_flips, 0.0);
}

TEST(Comparison, ExpectsAFlipIfAJumpChangesTheResult) {
  const Estimate seen = {
      .exact = 1.0, .bound = 0.1, .jump_probability = 0.25, .jump = 0x1p-7};
  const Estimate hidden = {
      .exact = 1.0, .bound = 0.1, .jump_probability = 0.25, .jump = 0x1p-10};

  EXPECT_EQ(RowOf(Grid::kBf16, 1.0f, seen).expected_flips, 0.25);
  EXPECT_EQ(RowOf(Grid::kBf16, 1.0f, hidden).expected_flips, 0.0);
}

// Four elements on a tie and its double, and one whose own tie is another: what
// flips one of the four flips all. Each flips with probability 0.5, at least
// one of four with 15/16.
TEST(Comparison, ElementsOfOneSignificandAreOnePieceOfEvidence) {
  Comparison comparison(Grid::kBf16);
  const double tie = 1 + 0x1p-8;  // halfway from 1 to the next BF16 number
  const double other_tie = 1 + 0x3p-8;
  const auto add = [&](size_t column, double exact, float value) {
    comparison.Add(0, column, value,
                   {.exact = exact, .bound = 0x1p-20, .noise = 0x1p-26});
  };
  for (size_t j = 0; j < 3; ++j) add(j, tie, 1 + 0x1p-7f);
  add(3, 2 * tie, 2 + 0x1p-6f);
  add(4, other_tie, 1 + 0x1p-7f);

  Comparison merged(Grid::kBf16);
  merged.Merge(comparison);
  const runlog::OracleRow row = merged.Row();

  EXPECT_EQ(row.flips, 5);
  EXPECT_EQ(row.repeated_flips, 3);
  EXPECT_DOUBLE_EQ(row.expected_flips, 2.5);
  EXPECT_DOUBLE_EQ(row.expected_repeated_flips, 4 * 0.5 - 15.0 / 16.0);
}

TEST(Comparison, NoiseRatioComparesRootMeanSquares) {
  Comparison comparison(Grid::kFp32);
  // Errors of 1 and 3 units where 2 were expected: sqrt((1 + 9) / (4 + 4)).
  const double unit = 0x1p-20;
  comparison.Add(0, 0, static_cast<float>(1 + unit),
                 {.exact = 1, .bound = 1, .noise = 2 * unit});
  comparison.Add(0, 1, static_cast<float>(1 - 3 * unit),
                 {.exact = 1, .bound = 1, .noise = 2 * unit});

  EXPECT_DOUBLE_EQ(comparison.Row().noise_ratio, std::sqrt(10.0 / 8.0));
  EXPECT_TRUE(std::isnan(RowOf(Grid::kBf16, 1.0f, {.exact = 1.0}).noise_ratio));
}

// A last place is 0x1p-23 at 1, and an element that the ascending order has
// exactly is expected to be off by it over the root of 12: sqrt(12 / 4) of four
// such elements, of which one is off by one.
TEST(Comparison, NoiseIsExpectedOfElementsThatOneOrderHasExactly) {
  Comparison comparison(Grid::kFp32);
  for (size_t j = 0; j < 4; ++j) {
    comparison.Add(0, j, j == 2 ? 1.0f + 0x1p-23f : 1.0f,
                   {.exact = 1, .bound = 0x1p-20});
  }

  EXPECT_DOUBLE_EQ(comparison.Row().noise_ratio, std::sqrt(3.0));
}

// Chance explains most of a single element: sqrt(1 + 2 sqrt(x) + 2 x) = 8.1716
// for x = ln(1e12). More elements leave more of the error, and no chance
// explains one that FP32 cannot have. Probe logs that lie beyond are refused.
TEST(Comparison, ChanceExplainsAnErrorOfOneElementBest) {
  const auto row_of = [](size_t elements, double noise) {
    Comparison comparison(Grid::kFp32);
    for (size_t j = 0; j < elements; ++j) {
      comparison.Add(
          0, j, 1.0f + 0x1p-10f,
          {.exact = 1, .bound = noise > 0 ? 1.0 : 0, .noise = noise});
    }
    return comparison.Row();
  };

  const runlog::OracleRow one = row_of(1, 0x1p-20);
  const runlog::OracleRow many = row_of(100, 0x1p-20);
  const runlog::OracleRow none = row_of(2, 0);

  EXPECT_NEAR(one.noise_ratio / one.tensor_noise_ratio, 8.1716, 5e-5);
  EXPECT_LT(many.noise_ratio / many.tensor_noise_ratio, 2);
  EXPECT_GT(many.noise_ratio / many.tensor_noise_ratio, 1);
  EXPECT_EQ(none.noise_ratio, HUGE_VAL);
  EXPECT_EQ(none.tensor_noise_ratio, HUGE_VAL);
}

TEST(Comparison, MergeCountsBothAndKeepsTheWorse) {
  Comparison mild(Grid::kFp32);
  mild.Add(0, 0, 1.0f + 0x1p-22f, {.exact = 1.0, .bound = 1.0, .noise = 1.0});
  Comparison wild(Grid::kFp32);
  wild.Add(5, 6, 2.0f, {.exact = 1.0, .bound = 0.1, .noise = 1.0});

  mild.Merge(wild);

  const runlog::OracleRow row = mild.Row();
  EXPECT_EQ(row.elements, 2);
  EXPECT_EQ(row.flips, 1);
  EXPECT_EQ(row.other, 1);
  EXPECT_EQ(row.worst_row, 5);
  EXPECT_EQ(row.worst_value, 2.0);
  EXPECT_NEAR(row.noise_ratio, std::sqrt(0.5), 1e-6);  // errors 0 and 1 of 1
}

}  // namespace
}  // namespace isoloss::oracle::comparison_test
