#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/estimators/size_text.h"
#include "isoloss/studies/documents.h"

namespace isoloss::studies::ladder_document_test {
namespace {

using estimators::LadderStatement;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const LadderStatement& statement) {
  return document::RenderText(LadderDocument(statement));
}
std::string JsonOf(const LadderStatement& statement) {
  return document::RenderJson(LadderDocument(statement));
}
std::string SvgOf(const LadderStatement& statement) {
  return document::RenderSvg(LadderPicture(statement));
}

/// One arm with four sizes and a large batch. Losses are 2 nats, so that 0.002
/// nats are 0.1 %.
LadderStatement Statement(double gap_nats) {
  estimators::LadderArm arm{.name = "fast<arm>", .recipe = "mxfp8_rceil"};
  for (const double tokens : {1e6, 2e6, 4e6, 8e6}) {
    arm.cells.push_back({.name = std::to_string(arm.cells.size()),
                         .size = {1.5e6, tokens, 1e6},
                         .gaps = {gap_nats - 1e-5, gap_nats + 1e-5},
                         .baseline = {2, 2}});
  }
  arm.large_batch = {arm.cells[0], "0"};
  arm.large_batch->cell.name = "0-batch16";
  arm.large_batch->cell.gaps = {0.0099, 0.0101};
  LadderStatement statement = estimators::StateLadder(
      "name", "bf16", {arm}, {.sizes = {estimators::ParseSize("16B")}});
  statement.notes = {"One size is left out."};
  return statement;
}

TEST(LadderDocument, SaysTheVerdictAndBelowItWhatMustBeTrue) {
  const std::string text = TextOf(Statement(0));

  EXPECT_TRUE(text.starts_with("fast<arm> at 16B@50B: SAFE: gap "));
  // log10 of 2.4e9 * 50e9 over 1e6 * 8e6 is 7.176, and 0.25 / 7.176 = 0.035.
  EXPECT_THAT(text.substr(text.find('\n') + 1),
              ::testing::StartsWith(
                  "What must be true: to leave the margin at 16B@50B, "
                  "the gap must grow by 0.035 % per decade of compute "
                  "beyond the ladder; measured growth is "));
  EXPECT_THAT(text, HasSubstr("16B@50B (2.4B active parameters, 7.2 decades"));
  EXPECT_THAT(text, HasSubstr("constant     "));
  EXPECT_THAT(text, Not(HasSubstr("nine of ten")));
  EXPECT_THAT(text, HasSubstr("minus 0: +0.500 "));
  EXPECT_THAT(text, HasSubstr("the gap depends on the batch"));
  EXPECT_THAT(text, HasSubstr("One size is left out."));
}

TEST(LadderDocument, SaysNothingMustBeTrueOfAGapOutsideTheMargin) {
  const std::string text = TextOf(Statement(0.01));

  EXPECT_THAT(text, HasSubstr("16B@50B: UNSAFE"));
  EXPECT_THAT(text, Not(HasSubstr("What must be true")));
}

TEST(LadderDocument, SaysHowManySeedsWouldDo) {
  LadderStatement statement = Statement(0);
  estimators::SizeStatement& size = statement.arms[0].sizes[0];
  size.verdict = estimators::ScaleVerdict::kInconclusive;
  size.seeds_without_gap = 14;
  EXPECT_THAT(TextOf(statement), HasSubstr("doubts below"));
  size.gap_percent.upper = 1;
  EXPECT_THAT(TextOf(statement), HasSubstr("with 14 seeds of each size"));
}

TEST(LadderDocument, HoldsEveryNumber) {
  const auto json = nlohmann::json::parse(JsonOf(Statement(0)));

  EXPECT_EQ(json.at("schema_version"), 2);
  const auto& arm = json.at("arms").at(0);
  EXPECT_EQ(arm.at("name"), "fast<arm>");
  EXPECT_EQ(arm.at("cells").at(0).at("gaps_nats").at(1), 1e-5);
  EXPECT_EQ(arm.at("cells").at(0).at("parameters"), 1.5e6);
  EXPECT_EQ(arm.at("cells").at(0).at("active_parameters"), 1e6);
  EXPECT_EQ(arm.at("large_batch").at("twin"), "0");
  const auto& size = arm.at("sizes").at(0);
  EXPECT_EQ(size.at("verdict"), "safe");
  EXPECT_EQ(size.at("active_parameters"), 2.4e9);
  EXPECT_EQ(size.at("sensitivity").at(0).at("law"), "constant");
  EXPECT_THAT(size.at("what_must_be_true").get<std::string>(),
              HasSubstr("must grow by 0.035 %"));
}

TEST(LadderDocument, SaysHowRatesFollowTheWidth) {
  LadderStatement statement = Statement(0);
  statement.rate = {.value = -0.75, .least = -1, .largest = -0.25};

  EXPECT_THAT(TextOf(statement),
              HasSubstr("Learning rates grow with the power -0.75 of the width "
                        "(measured; single seeds give -1.00 to -0.25).\n"));
  const auto json = nlohmann::json::parse(JsonOf(statement));
  EXPECT_EQ(json.at("rate_exponent").at("estimate"), -0.75);
  EXPECT_EQ(json.at("rate_exponent").at("lower"), -1);
  EXPECT_EQ(json.at("rate_exponent").at("upper"), -0.25);
  EXPECT_EQ(json.at("rate_exponent_measured"), true);

  statement.rate = {.value = -0.75};
  EXPECT_THAT(TextOf(statement), HasSubstr("(measured; nobody knows what"));
  statement.rate = {.why_assumed = "nobody swept"};
  EXPECT_THAT(TextOf(statement),
              HasSubstr("power -0.50 of the width (assumed)."));
  EXPECT_EQ(
      nlohmann::json::parse(JsonOf(statement)).at("rate_exponent_measured"),
      false);
}

TEST(LadderPicture, DrawsAPanelForEachArm) {
  LadderStatement statement = Statement(0);
  statement.arms.push_back(statement.arms[0]);
  statement.arms[1].sizes.clear();
  statement.arms[1].arm.large_batch.reset();
  statement.arms[1].arm.cells.clear();
  const std::string svg = SvgOf(statement);

  EXPECT_THAT(svg, HasSubstr("fast&lt;arm&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("fast<arm>")));
  EXPECT_THAT(svg, HasSubstr("No size has two seeds."));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace isoloss::studies::ladder_document_test
