#include "isoloss/document/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace isoloss::document::chart_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Characters of UTF-8 text, all one column wide.
int Columns(const std::string& line) {
  int columns = 0;
  for (const char c : line) columns += (c & 0xC0) != 0x80 ? 1 : 0;
  return columns;
}

/// 20 steps on 20 columns: one step each.
Chart TwentySteps(double (*value)(int)) {
  Chart chart;
  Curve curve;
  for (int i = 0; i < 20; ++i) {
    chart.step.push_back(i + 1);
    curve.y.push_back(value(i));
  }
  chart.curves = {curve};
  chart.rows = 5;
  return chart;
}

TEST(DrawChart, PutsValuesWhereTheAxesSay) {
  Chart chart = TwentySteps([](int i) { return i < 10 ? 4.0 : 0.0; });
  chart.marked_step = 11;

  const auto lines = DrawChart(chart, {.width = 30, .ascii = true});

  EXPECT_THAT(lines, ElementsAre("       4 |oooooooooo",            //
                                 "         |          o",           //
                                 "       2 |          o",           //
                                 "         |          o",           //
                                 "       0 |          oooooooooo",  //
                                 "         ++---------+--------+",  //
                                 "          step 1   11       20"));
}

TEST(DrawChart, LeavesGapsForValuesThatAreNotFinite) {
  const Chart chart = TwentySteps([](int i) {
    return i == 5 ? kNan : i == 6 ? 1.0 / 0.0 : double(i % 2);
  });

  const auto lines = DrawChart(chart, {.width = 30, .ascii = true});

  for (size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(lines[row].substr(15, 2), "  ") << lines[row];
  }
}

TEST(DrawChart, DrawsNothingWithoutAFiniteValue) {
  EXPECT_THAT(DrawChart(TwentySteps([](int) { return kNan; }), {}), IsEmpty());
  EXPECT_THAT(DrawChart(Chart(), {}), IsEmpty());
}

TEST(DrawChart, MarksWhereBothCurvesAre) {
  Chart chart = TwentySteps([](int) { return 1.0; });
  chart.curves.push_back(chart.curves[0]);
  chart.curves[1].dotted = true;
  chart.curves[1].y[3] = 3.0;

  const auto lines = DrawChart(chart, {.width = 30, .ascii = true});

  EXPECT_EQ(lines[0], "       3 |   x");
  EXPECT_EQ(lines[4], "       1 |###o################");
}

TEST(DrawChart, FillsTheWidthExactlyAndFollowsTheStyle) {
  Chart chart = TwentySteps([](int i) { return 1.0 * i; });
  chart.guides = {0, 10};
  for (const int width : {60, 80, 101}) {
    for (const bool ascii : {false, true}) {
      for (const auto& line :
           DrawChart(chart, {.width = width, .ascii = ascii})) {
        EXPECT_LE(Columns(line), width) << line;
        EXPECT_THAT(line, Not(HasSubstr("\x1b")));
        EXPECT_NE(line.back(), ' ') << line;
        if (ascii) {
          EXPECT_EQ(Columns(line), line.size()) << line;
        }
      }
    }
  }

  EXPECT_THAT(DrawChart(chart, {.color = true})[0], HasSubstr("\x1b[34m"));
}

TEST(DrawChart, DrawsBrailleDots) {
  // One cell row of 4 dots, 40 dots wide: 0 is the bottom dot (bits 6 and 7),
  // 1 the top one (bits 0 and 3).
  Chart chart = TwentySteps([](int i) { return i < 10 ? 0.0 : 1.0; });
  chart.rows = 2;

  const auto lines = DrawChart(chart, {.width = 30});

  EXPECT_THAT(lines[0], HasSubstr("\u2809"));
  EXPECT_THAT(lines[1], HasSubstr("\u28C0"));
}

}  // namespace
}  // namespace isoloss::document::chart_test
