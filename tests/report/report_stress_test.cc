#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/report/stress.h"

namespace isoloss::report {
namespace {

using stress::StressMap;
using ::testing::HasSubstr;
using ::testing::Not;

StressMap Map() {
  StressMap map{.baseline = "bf16",
                .reference = "rceil",
                .stresses = {"plain", "lr_10"},
                .arms = {"floor"},
                .cells = {},
                .separations = {}};
  map.cells = {{.stress = "plain", .arm = "floor", .seeds = 8},
               {.stress = "lr_10", .arm = "floor", .seeds = 8, .diverged = 8}};
  map.cells[0].gap = 0.0123;
  map.cells[0].gap_lower = 0.01;
  map.cells[0].gap_upper = 0.0145;
  map.separations = {
      {.arm = "floor", .stress = "plain", .by = "loss", .p = 0.2}};
  return map;
}

TEST(RenderStress, SaysThatNothingIsSeparated) {
  const std::string text = RenderStress(Map());
  EXPECT_THAT(text, HasSubstr("floor is not told from rceil anywhere"));
  EXPECT_THAT(text, HasSubstr("This suite does not separate"));
  EXPECT_THAT(text, HasSubstr("+0.0123 [+0.0100, +0.0145]"));
  EXPECT_THAT(text, HasSubstr("8/8"));
}

TEST(RenderStress, SaysWhatSeparates) {
  StressMap map = Map();
  map.separations[0].separated = true;
  map.separations[0].p = 0.001;
  const std::string text = RenderStress(map);
  EXPECT_THAT(text, HasSubstr("floor is told from rceil by its loss under "
                              "plain (p 0.001)."));
  EXPECT_THAT(text, Not(HasSubstr("does not separate")));
}

TEST(RenderStressJson, GapsThatAreNotThereAreNull) {
  const auto json = nlohmann::json::parse(RenderStressJson(Map()));
  EXPECT_EQ(json.at("separates_any"), false);
  EXPECT_EQ(json.at("cells").at(0).at("gap_nats"), 0.0123);
  EXPECT_TRUE(json.at("cells").at(1).at("gap_nats").is_null());
  EXPECT_EQ(json.at("cells").at(1).at("diverged"), 8);
}

TEST(RenderStressSvg, HasACellForEachArmUnderEachStress) {
  const std::string svg = RenderStressSvg(Map());
  EXPECT_THAT(svg, HasSubstr("0/8  +0.0123"));
  EXPECT_THAT(svg, HasSubstr("8/8  no gap"));
  EXPECT_THAT(svg, HasSubstr("lr_10"));
}

}  // namespace
}  // namespace isoloss::report
