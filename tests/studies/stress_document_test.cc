#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/studies/documents.h"

namespace isoloss::studies::stress_document_test {
namespace {

using estimators::StressMap;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const StressMap& map) {
  return document::RenderText(StressDocument(map));
}
std::string JsonOf(const StressMap& map) {
  return document::RenderJson(StressDocument(map));
}
std::string SvgOf(const StressMap& map) {
  return document::RenderSvg(StressPicture(map));
}

StressMap Map() {
  StressMap map{.experiment = "e",
                .baseline = "bf16",
                .reference = "rceil",
                .modes = {"plain", "lr_10"},
                .arms = {"floor"},
                .results = {},
                .separations = {}};
  map.results = {{.mode = "plain", .arm = "floor", .seeds = 8},
                 {.mode = "lr_10", .arm = "floor", .seeds = 8, .diverged = 8}};
  map.results[0].gap = 0.0123;
  map.results[0].gap_lower = 0.01;
  map.results[0].gap_upper = 0.0145;
  map.separations = {{.arm = "floor", .mode = "plain", .by = "loss", .p = 0.2}};
  return map;
}

TEST(StressDocument, SaysThatNothingIsSeparated) {
  const std::string text = TextOf(Map());
  EXPECT_THAT(text,
              HasSubstr("floor is not told apart from rceil in any mode"));
  EXPECT_THAT(text,
              HasSubstr("do not tell the recipes that are known to be bad"));
  EXPECT_THAT(text, HasSubstr("+0.0123 [+0.0100, +0.0145]"));
  EXPECT_THAT(text, HasSubstr("8/8"));
}

TEST(StressDocument, SaysWhatSeparates) {
  StressMap map = Map();
  map.separations[0].separated = true;
  map.separations[0].p = 0.001;
  const std::string text = TextOf(map);
  EXPECT_THAT(text, HasSubstr("floor is told apart from rceil by its loss in "
                              "mode plain (p 0.001)."));
  EXPECT_THAT(text, Not(HasSubstr("do not tell")));
}

TEST(StressDocument, GapsThatAreNotThereAreNull) {
  const auto json = nlohmann::json::parse(JsonOf(Map()));
  EXPECT_EQ(json.at("separates_any"), false);
  EXPECT_EQ(json.at("experiment"), "e");
  EXPECT_EQ(json.at("confidence"), 0.95);
  const auto& results = json.at("results");
  EXPECT_EQ(results.at(0).at("gap_nats").at("estimate"), 0.0123);
  EXPECT_EQ(results.at(0).at("gap_nats").at("upper"), 0.0145);
  EXPECT_TRUE(results.at(1).at("gap_nats").is_null());
  EXPECT_EQ(results.at(1).at("diverged_share").at("estimate"), 1);
}

TEST(StressPicture, HasACellForEachArmUnderEachStress) {
  const std::string svg = SvgOf(Map());
  EXPECT_THAT(svg, HasSubstr("0/8  +0.0123"));
  EXPECT_THAT(svg, HasSubstr("8/8  no gap"));
  EXPECT_THAT(svg, HasSubstr("lr_10"));
}

}  // namespace
}  // namespace isoloss::studies::stress_document_test
