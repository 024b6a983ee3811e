#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/studies/documents.h"

namespace isoloss::studies::ladder_document_test {
namespace {

using estimators::ArmStatement;
using estimators::GapFit;
using estimators::LadderStatement;
using estimators::SizeStatement;
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

GapFit Fit(estimators::Form form, double estimate, double lower, double upper) {
  GapFit fit;
  fit.form = form;
  fit.predicted = {estimate, lower, upper};
  return fit;
}

LadderStatement Statement() {
  ArmStatement arm{.arm = {.name = "fast<arm>", .recipe = "mxfp8_rceil"},
                   .held_out = {},
                   .slope = estimators::GapInterval{0.001, -0.002, 0.004},
                   .sizes = {}};
  arm.arm.cells = {{.name = "0.34M-1",
                    .size = {0.34e6, 0.34e6},
                    .gaps = {0.001, 0.003},
                    .baseline = {2, 2}}};
  arm.held_out = {{.form = estimators::Form::kPowerLaw,
                   .cell = "0.34M-1",
                   .measured = 0.002,
                   .interval = {0.001, 0.0015, 0.0016},
                   .inside = false}};
  SizeStatement size{.name = "16B@50B", .size = {16e9, 50e9}};
  size.margin_nats = 0.005;
  size.fits = {Fit(estimators::Form::kPowerLaw, 0.001, -4000, 4000),
               Fit(estimators::Form::kEffectiveSize, 0.001, 0.0005, 0.002)};
  size.seeds_factor = 8;
  arm.sizes = {size};
  return {.experiment = "name",
          .baseline = "bf16",
          .question = {},
          .margin_nats = 0.005,
          .arms = {arm},
          .notes = {"One size is left out."}};
}

TEST(LadderDocument, SaysWhatASizeMayExpect) {
  const std::string text = TextOf(Statement());

  EXPECT_THAT(text, HasSubstr("16B@50B: INCONCLUSIVE (margin 0.0050 nats)"));
  EXPECT_THAT(text, HasSubstr("8 times the seeds"));
  EXPECT_THAT(text, HasSubstr("OUTSIDE"));
  EXPECT_THAT(text, HasSubstr("+0.0010 [+0.0005, +0.0020]"));
  EXPECT_THAT(text, HasSubstr("One size is left out."));
  // A law that allows any gap says so in place of a number.
  EXPECT_THAT(text, HasSubstr("[below -10, above 10]"));
  EXPECT_THAT(text, Not(HasSubstr("4000")));
}

TEST(LadderDocument, SaysWhenSeedsWouldNotHelp) {
  LadderStatement statement = Statement();
  statement.arms[0].sizes[0].seeds_factor.reset();
  EXPECT_THAT(TextOf(statement), HasSubstr("train larger sizes"));
  statement.arms[0].sizes[0].verdict = estimators::ScaleVerdict::kSafe;
  EXPECT_THAT(TextOf(statement), HasSubstr("16B@50B: safe"));
  EXPECT_THAT(TextOf(statement), Not(HasSubstr("train larger sizes")));
}

TEST(LadderDocument, HoldsEveryNumber) {
  const auto json = nlohmann::json::parse(JsonOf(Statement()));

  const auto& arm = json.at("arms").at(0);
  EXPECT_EQ(arm.at("name"), "fast<arm>");
  EXPECT_EQ(arm.at("cells").at(0).at("gaps_nats").at(1), 0.003);
  EXPECT_EQ(arm.at("sizes").at(0).at("verdict"), "inconclusive");
  EXPECT_EQ(arm.at("sizes").at(0).at("fits").at(0).at("gap_nats").at("upper"),
            4000);
  EXPECT_EQ(arm.at("held_out").at(0).at("inside"), false);
  EXPECT_EQ(json.at("margin_nats"), 0.005);
}

TEST(LadderPicture, DrawsAPanelForEachArm) {
  LadderStatement statement = Statement();
  statement.arms.push_back(statement.arms[0]);
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
