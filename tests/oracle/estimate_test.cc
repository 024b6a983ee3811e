#include "isoloss/oracle/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace isoloss::oracle::estimate_test {
namespace {

TEST(RoundTo, NeverGoesByWayOfFp32) {
  // 1 + 2^-8 is the tie between 1 and 1 + 2^-7; FP32 can't hold what is off by
  // 2^-40, and would round it to the tie and then to even.
  EXPECT_EQ(RoundTo(Grid::kBf16, 1.0 + 0x1p-8), 1.0f);
  EXPECT_EQ(RoundTo(Grid::kBf16, 1.0 + 0x1p-8 + 0x1p-40), 1.0f + 0x1p-7f);
  EXPECT_EQ(RoundTo(Grid::kBf16, -1.0 - 0x1p-8 - 0x1p-40), -1.0f - 0x1p-7f);
  // The next tie goes up, unless it is below.
  EXPECT_EQ(RoundTo(Grid::kBf16, 1.0 + 0x3p-8), 1.0f + 0x1p-6f);
  EXPECT_EQ(RoundTo(Grid::kBf16, 1.0 + 0x3p-8 - 0x1p-40), 1.0f + 0x1p-7f);
}

TEST(RoundTo, OverflowsAndKeepsSubnormals) {
  const auto infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RoundTo(Grid::kFp32, 1e39), infinity);
  EXPECT_EQ(RoundTo(Grid::kBf16, -0x1.FFp127), -infinity);
  EXPECT_EQ(RoundTo(Grid::kBf16, 0x1p-133), 0x1p-133f);
  EXPECT_EQ(RoundTo(Grid::kFp32, 0x1p-149), 0x1p-149f);
  EXPECT_TRUE(std::isnan(RoundTo(Grid::kBf16, std::nan(""))));
}

TEST(Boundary, LiesHalfwayToTheNeighbour) {
  EXPECT_EQ(Boundary(Grid::kBf16, 1.0f, true), 1.0 + 0x1p-8);
  EXPECT_EQ(Boundary(Grid::kBf16, 1.0f, false), 1.0 - 0x1p-9);
  EXPECT_EQ(Boundary(Grid::kBf16, -1.0f, false), -1.0 - 0x1p-8);
  EXPECT_EQ(Boundary(Grid::kBf16, 0.0f, true), 0x1p-134);
  EXPECT_EQ(Boundary(Grid::kBf16, 0.0f, false), -0x1p-134);
  EXPECT_EQ(Boundary(Grid::kFp32, 1.0f, true), 1.0 + 0x1p-24);
  // Above the largest value lies no number, but a border all the same.
  EXPECT_EQ(Boundary(Grid::kBf16, 0x1.FEp127f, true), 0x1.FFp127);
}

TEST(Fp16, HasItsOwnGrid) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RoundTo(Grid::kFp16, 1 + 0x1p-11), 1.0f);  // a tie, to even
  EXPECT_EQ(RoundTo(Grid::kFp16, 1 + 0x1.8p-10), 1 + 0x1p-9f);
  EXPECT_EQ(RoundTo(Grid::kFp16, 65519.9), 65504.0f);
  EXPECT_EQ(RoundTo(Grid::kFp16, -65520.0), -kInfinite);
  EXPECT_EQ(RoundTo(Grid::kFp16, 0x1.8p-24), 0x1p-23f);
  EXPECT_EQ(RoundTo(Grid::kFp16, 0x1p-25), 0.0f);
  EXPECT_TRUE(std::isnan(RoundTo(Grid::kFp16, std::nan(""))));
  EXPECT_EQ(Neighbour(Grid::kFp16, 1.0f, true), 1 + 0x1p-10f);
  EXPECT_EQ(Neighbour(Grid::kFp16, 1.0f, false), 1 - 0x1p-11f);
  EXPECT_EQ(Neighbour(Grid::kFp16, -1.0f, true), -1 + 0x1p-11f);
  EXPECT_EQ(Neighbour(Grid::kFp16, 0.0f, false), -0x1p-24f);
  EXPECT_EQ(Neighbour(Grid::kFp16, 0x1p-24f, false), 0.0f);
  EXPECT_EQ(Neighbour(Grid::kFp16, 65504.0f, true), kInfinite);
  EXPECT_EQ(Neighbour(Grid::kFp16, kInfinite, false), 65504.0f);
  EXPECT_EQ(Boundary(Grid::kFp16, 65504.0f, true), 65520.0);
}

TEST(Ulp, IsTheSpacingOfFp32) {
  EXPECT_EQ(Ulp(1.0), 0x1p-23);
  EXPECT_EQ(Ulp(-1.75), 0x1p-23);
  EXPECT_EQ(Ulp(0x1p-126), 0x1p-149);
  EXPECT_EQ(Ulp(0.0), 0x1p-149);
  EXPECT_EQ(Ulp(1e300), 0x1p104);
}

TEST(Rounded32, LeavesWhatFp32HoldsAlone) {
  const Estimate exact = Rounded32({.exact = 0.75});
  EXPECT_EQ(exact.bound, 0.0);
  EXPECT_EQ(exact.noise, 0.0);

  const Estimate third = Rounded32({.exact = 1.0 / 3.0});
  EXPECT_GE(third.bound, std::fabs(1.0 / 3.0 - double{1.0f / 3.0f}));
  EXPECT_LE(third.bound, 0x1p-25);
  EXPECT_DOUBLE_EQ(third.noise, 0x1p-25 / std::sqrt(12.0));
}

TEST(Overflowed32, IsInfiniteOnlyWithoutADoubt) {
  const double border = 0x1.ffffffp127;  // a tie, which rounds to infinity
  EXPECT_EQ(Overflowed32({.exact = border}).exact, HUGE_VAL);
  EXPECT_EQ(Overflowed32({.exact = -1e300, .bound = 1e299}).exact, -HUGE_VAL);
  EXPECT_EQ(Overflowed32({.exact = -1e300, .bound = 1e299}).bound, 0.0);
  const double below = std::nextafter(border, 0.0);
  EXPECT_EQ(Overflowed32({.exact = below}).exact, below);
  EXPECT_EQ(Overflowed32({.exact = border, .bound = 1e30}).exact, border);
  EXPECT_TRUE(std::isnan(Overflowed32({.exact = std::nan("")}).exact));
}

TEST(RoundedOnTheWay, IsExactAwayFromABoundary) {
  const Estimate value =
      RoundedOnTheWay(Grid::kBf16, {.exact = 1.001, .bound = 1e-6});

  EXPECT_EQ(value.exact, 1.0);
  EXPECT_EQ(value.bound, 0.0);
  EXPECT_EQ(value.jump_probability, 0.0);
}

TEST(RoundedOnTheWay, MayJumpAtABoundary) {
  // Just below the tie of 1 and 1 + 2^-7, by one standard deviation.
  const Estimate value = RoundedOnTheWay(
      Grid::kBf16,
      {.exact = 1.0 + 0x1p-8 - 1e-6, .bound = 1e-5, .noise = 1e-6});

  EXPECT_EQ(value.exact, 1.0);
  EXPECT_EQ(value.bound, 0x1p-7);
  EXPECT_EQ(value.jump, 0x1p-7);
  EXPECT_NEAR(value.jump_probability, 0.1587, 1e-4);  // P(N > 1)
}

}  // namespace
}  // namespace isoloss::oracle::estimate_test
