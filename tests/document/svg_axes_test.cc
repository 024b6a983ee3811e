#include "isoloss/document/svg_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

namespace isoloss::document::svg_axes_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::SizeIs;
using ::testing::Truly;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SvgAxis Linear() {
  SvgAxis axis = SvgAxis::Vertical(300, 100);
  axis.Hold(-1);
  axis.Hold(3);
  axis.Hold(kInfinity);
  axis.Hold(std::numeric_limits<double>::quiet_NaN());
  return axis;
}

TEST(SvgAxis, PlacesAlongALineAndBeyondItAtItsEnds) {
  const SvgAxis axis = Linear();
  EXPECT_DOUBLE_EQ(axis.At(1), 200);
  EXPECT_DOUBLE_EQ(axis.At(-1), 300);
  EXPECT_DOUBLE_EQ(axis.At(kInfinity), 100);
  EXPECT_TRUE(axis.Holds(3));
  EXPECT_FALSE(axis.Holds(3.1));
}

TEST(SvgAxis, TicksAreRoundAndHaveRoom) {
  // 50 pixels a unit.
  EXPECT_THAT(Linear().Ticks(40), ElementsAre(-1, 0, 1, 2, 3));
  EXPECT_THAT(Linear().Ticks(60), ElementsAre(0, 2));
}

TEST(SvgAxis, OfOneValueHasRoomAroundIt) {
  for (const double value : {0.0, 1e6}) {
    SvgAxis axis = SvgAxis::Horizontal(0, 100);
    axis.Hold(value);
    axis.Widen(0.1);
    EXPECT_DOUBLE_EQ(axis.At(value), 50);
    EXPECT_THAT(axis.Ticks(40), ::testing::Not(::testing::IsEmpty()));
  }
}

/// Widened, it has different ticks, all of them on it.
void ExpectFewTicks(std::initializer_list<double> values) {
  for (const double share : {0.0, 0.1}) {
    SvgAxis axis = SvgAxis::Vertical(150, 0);
    for (const double value : values) axis.Hold(value);
    axis.Widen(share);
    const std::vector<double> ticks = axis.Ticks(30);
    ASSERT_THAT(ticks, SizeIs(AllOf(Ge(2U), Le(200U))));
    EXPECT_THAT(ticks, Each(Truly([&](double x) { return axis.Holds(x); })));
    EXPECT_EQ(std::ranges::adjacent_find(ticks, std::greater_equal<>()),
              ticks.end());
    for (const double value : values) EXPECT_TRUE(axis.Holds(value));
  }
}

TEST(SvgAxis, HasFewTicksHoweverNearOrFarItsValues) {
  for (const double value : {2.3456, -2.3456, 1e300, -1e300, 1e-300, 0.0}) {
    const double next = std::nextafter(value, kInfinity);
    ExpectFewTicks({value, value});
    ExpectFewTicks({value, next});
    ExpectFewTicks({value, std::nextafter(next, kInfinity)});
  }
  ExpectFewTicks({-1e300, 1e300});
}

TEST(SvgAxis, TicksEndWithoutRoomAroundItsValuesToo) {
  SvgAxis axis = SvgAxis::Vertical(150, 0);
  axis.Hold(2.3456);
  EXPECT_THAT(axis.Ticks(30), SizeIs(Le(200U)));
  axis.Hold(std::nextafter(2.3456, 3));
  EXPECT_THAT(axis.Ticks(30), SizeIs(Le(200U)));
  // 4000 ticks would have room.
  EXPECT_THAT(Linear().Ticks(0.05), SizeIs(200));
}

TEST(SvgAxis, LeavesOutWhatNoRangeCanHold) {
  SvgAxis axis = Linear();
  axis.Hold(1.7e308);
  axis.Hold(-1.7e308);
  EXPECT_DOUBLE_EQ(axis.At(1), 200);
}

TEST(SvgAxis, ALogAxisHasATickForEachDecadeWhileTheyFit) {
  SvgAxis axis = SvgAxis::Horizontal(0, 400, SvgAxis::Scale::kLog);
  axis.Hold(1e10);
  axis.Hold(1e14);
  axis.Hold(-1);  // has no place
  EXPECT_DOUBLE_EQ(axis.At(1e12), 200);
  EXPECT_THAT(axis.Ticks(90),
              Pointwise(::testing::DoubleEq(), {1e10, 1e11, 1e12, 1e13, 1e14}));
  EXPECT_THAT(axis.Ticks(110),
              Pointwise(::testing::DoubleEq(), {1e10, 1e12, 1e14}));
}

TEST(SvgAxis, AnAsinhAxisHasTicksOfItsUnitOnBothSides) {
  SvgAxis axis =
      SvgAxis::Vertical(400, 0, SvgAxis::Scale::kAsinh, /*unit=*/0.5);
  axis.Hold(-60);
  axis.Hold(60);
  EXPECT_DOUBLE_EQ(axis.At(0), 200);
  EXPECT_DOUBLE_EQ(axis.At(7) + axis.At(-7), 400);
  EXPECT_THAT(axis.Ticks(10), ElementsAre(0, 0.5, -0.5, 5, -5, 50, -50));
}

TEST(SvgAxis, MarksWhatLiesBeyondItByArrows) {
  const SvgAxis axis = Linear();
  const std::string inside = axis.Whisker(10, 1, 0, 2, colour::kBlue);
  EXPECT_THAT(inside, HasSubstr("<circle cx=\"10.0\" cy=\"200.0\""));
  EXPECT_THAT(inside, Not(HasSubstr("<polygon")));
  // The tip is at the end, the base within.
  const std::string above = axis.Whisker(10, 1, 0, kInfinity, colour::kBlue);
  EXPECT_THAT(above, HasSubstr("<polygon points=\"10.0,100.0 6.0,107.0"));
  const std::string below = axis.Whisker(10, -9, -10, 0, colour::kBlue);
  EXPECT_THAT(below, HasSubstr("<polygon points=\"10.0,300.0 6.0,293.0"));
  EXPECT_THAT(below, Not(HasSubstr("<circle")));
}

TEST(SvgLabels, CoverNoOther) {
  SvgLabels labels;
  const auto place = [&](double x) {
    return labels.Place(x, 50, "name", colour::kInk, 0, 200);
  };
  EXPECT_THAT(place(100), HasSubstr("y=\"50\""));
  const std::string second = place(110);
  EXPECT_THAT(second, HasSubstr("y=\"36\""));
  EXPECT_THAT(second, HasSubstr("<line"));
  EXPECT_THAT(place(160), HasSubstr("y=\"50\""));
}

TEST(SvgForest, DrawsRowsOrSaysWhyNot) {
  const std::string svg = SvgForest(
      100, 300, 20,
      std::vector<SvgForestRow>{
          {.label = "a<b", .colour = colour::kRed, .upper = 2, .dot = 1},
          {.label = "c", .colour = colour::kRed, .instead = "no loss"}},
      /*zero=*/true, SignedTick);
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  EXPECT_THAT(svg, HasSubstr("no loss"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(SvgForest, OfNearlyEqualValuesEnds) {
  const double next = std::nextafter(2.3456, 3);
  const std::string svg =
      SvgForest(100, 300, 20,
                std::vector<SvgForestRow>{{.label = "a",
                                           .colour = colour::kRed,
                                           .lower = 2.3456,
                                           .upper = next,
                                           .dot = 2.3456}},
                /*zero=*/false, SignedTick);
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_LT(svg.size(), 10000U);
}

}  // namespace
}  // namespace isoloss::document::svg_axes_test
