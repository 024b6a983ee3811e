#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/studies/documents.h"

namespace isoloss::studies::widths_document_test {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const compare::WidthTransfer& transfer) {
  return document::RenderText(WidthsDocument(transfer));
}
std::string JsonOf(const compare::WidthTransfer& transfer) {
  return document::RenderJson(WidthsDocument(transfer));
}
std::string SvgOf(const compare::WidthTransfer& transfer) {
  return document::RenderSvg(WidthsPicture(transfer));
}

compare::WidthTransfer Transfer() {
  compare::WidthTransfer transfer;
  transfer.arm = "mx<fp8>";
  transfer.width = 2048;
  transfer.small_widths = {128, 256, 512};
  transfer.steps = {1, 10};
  transfer.operands = {{.operand = "moe.w1_weight",
                        .measured = 27,
                        .nearest = 26,
                        .predicted = 25,
                        .lower = 24.5,
                        .upper = 25.5},
                       {.operand = "attention.wo_activation",
                        .measured = 30,
                        .nearest = 30,
                        .predicted = 30,
                        .lower = 29,
                        .upper = 31}};
  transfer.logs = 8;
  transfer.wide_logs = 2;
  transfer.left_out = {
      {.operand = "moe.w2_weight", .missing = 1, .infinite = 2},
      {.operand = "moe.w3_weight", .infinite = 1}};
  return transfer;
}

TEST(WidthsDocument, NamesWhatIsOutside) {
  const std::string text = TextOf(Transfer());
  EXPECT_THAT(text, HasSubstr("25.00 [24.50, 25.50]  OUTSIDE\n"));
  EXPECT_THAT(text, HasSubstr("30.00 [29.00, 31.00]\n"));
  // sqrt((2^2 + 0) / 2) and sqrt((1 + 0) / 2).
  EXPECT_THAT(text, HasSubstr("1 of 2 operands lie inside"));
  EXPECT_THAT(text, HasSubstr("1.41 dB from the line, 0.71 dB from width 512"));
}

TEST(WidthsDocument, NamesWhatIsLeftOut) {
  compare::WidthTransfer transfer = Transfer();
  EXPECT_THAT(TextOf(transfer),
              HasSubstr("2 operands are left out of 8 logs in all: "
                        "moe.w2_weight is missing in 1 log and not finite in 2 "
                        "logs, moe.w3_weight is not finite in 1 log."));
  EXPECT_THAT(TextOf(transfer), HasSubstr("the mean of 2 logs"));
  transfer.left_out.resize(1);
  transfer.left_out.resize(30, transfer.left_out.front());
  EXPECT_THAT(TextOf(transfer), HasSubstr(", and 10 more."));
}

TEST(WidthsDocument, HoldsEveryNumber) {
  const auto json = nlohmann::json::parse(JsonOf(Transfer()));
  EXPECT_EQ(json.at("inside"), 1);
  EXPECT_EQ(json.at("operands").at(0).at("measured_db"), 27);
  EXPECT_EQ(json.at("operands").at(0).at("inside"), false);
  EXPECT_EQ(json.at("operands").at(0).at("predicted_db").at("upper"), 25.5);
  EXPECT_EQ(json.at("left_out").at(0).at("infinite_logs"), 2);
  EXPECT_EQ(json.at("small_widths").at(2), 512);
}

TEST(WidthsPicture, DrawsWhatIsMeasuredAndWhatIsPredicted) {
  const std::string svg = SvgOf(Transfer());
  EXPECT_THAT(svg, HasSubstr("mx&lt;fp8&gt;"));
  size_t points = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos;
       at = svg.find("<circle", at + 1)) {
    ++points;
  }
  EXPECT_EQ(points, 2u + 2 * 2) << "two of the legend, two of each operand";
}

}  // namespace
}  // namespace isoloss::studies::widths_document_test
