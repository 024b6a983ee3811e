#include "isoloss/document/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace isoloss::document::picture_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string Drawn(PicturePart part) {
  return RenderSvg({.title = "a < b", .parts = {std::move(part)}});
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Picture, TitlesAreEscaped) {
  EXPECT_THAT(RenderSvg({.title = "a < b"}), HasSubstr("a &lt; b"));
}

TEST(PicturePanel, APathHasAGapWhereNothingIs) {
  const std::string svg = Drawn(
      PicturePanel{.paths = {{.points = {{1, 1}, {2, 2}, {3, kNaN}, {4, 4}},
                              .colour = colour::kBlue}}});
  const size_t begin = svg.find("<path d=\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string path = svg.substr(begin, svg.find('>', begin) - begin);
  EXPECT_EQ(CountOf(path, "M"), 2);
  EXPECT_EQ(CountOf(path, "L"), 1);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(PicturePanel, ShowsAllThatIsFiniteUnlessItsAxisIsFixed) {
  PicturePanel panel{
      .y = {.holds = {0, 1}},
      .marks = {
          {.x = 1, .y = 0.5}, {.x = 2, .y = 9}, {.x = 3, .y = kInfinity}}};
  // A dot for each finite value.
  EXPECT_EQ(CountOf(Drawn(panel), "<circle"), 2);
  panel.y.fixed = true;
  EXPECT_EQ(CountOf(Drawn(panel), "<circle"), 1);
}

TEST(PicturePanel, AnIntervalThatGoesOnHasAnArrow) {
  PicturePanel panel{.y = {.holds = {-1, 1}, .fixed = true},
                     .marks = {{.x = 1, .y = 0, .interval = {{-0.5, 0.5}}}}};
  EXPECT_THAT(Drawn(panel), Not(HasSubstr("<polygon")));
  panel.marks[0].interval->second = kInfinity;
  EXPECT_THAT(Drawn(panel), HasSubstr("<polygon"));
}

TEST(PicturePanel, SaysWhyItIsEmpty) {
  const std::string svg = Drawn(PicturePanel{.instead = "no runs"});
  EXPECT_THAT(svg, HasSubstr(">no runs<"));
  EXPECT_THAT(svg, Not(HasSubstr("<line")));
}

TEST(PicturePanel, StandsBesideTheOneBefore) {
  const PicturePanel panel{.instead = "none", .width = 400, .height = 100};
  PicturePanel beside = panel;
  beside.beside = true;
  const std::string row = RenderSvg({.title = "", .parts = {panel, beside}});
  const std::string column = RenderSvg({.title = "", .parts = {panel, panel}});
  EXPECT_THAT(row, HasSubstr("translate(400 46)"));
  EXPECT_THAT(column, HasSubstr("translate(0 146)"));
}

TEST(PictureStrip, ColoursBothSidesOfEachBound) {
  PictureStrip strip{.title = "it is so",
                     .text = "+1 [0, 2]",
                     .colour = colour::kGreen,
                     .estimate = 1,
                     .upper = 2,
                     .bounds = {0.5}};
  const std::string side = "fill-opacity=\"0.2\"";
  std::string svg = Drawn(strip);
  EXPECT_EQ(CountOf(svg, side), 2);
  EXPECT_LT(svg.find(std::string(colour::kRed)), svg.rfind(colour::kGreen));
  strip.bounds = {-0.5, 0.5};
  EXPECT_EQ(CountOf(Drawn(strip), side), 3);
}

TEST(PictureGrid, BreaksLongNamesOfColumns) {
  const std::string svg = Drawn(PictureGrid{
      .columns = {"deepseek_v3_fp8_block_grads"},
      .rows = {{"plain", {{.fill = "#ffffff", .text = "0/8", .note = "n"}}}}});
  EXPECT_THAT(svg, HasSubstr(">deepseek_v3_fp8<"));
  EXPECT_THAT(svg, HasSubstr(">_block_grads<"));
  EXPECT_THAT(svg, HasSubstr(">0/8<"));
}

}  // namespace
}  // namespace isoloss::document::picture_test
