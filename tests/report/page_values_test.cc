#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "isoloss/report/page/values.h"

namespace isoloss::report::page_values_test {
namespace {

using document::Json;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// RFC 4648 of the bytes of IEEE 754, as Python's struct and base64 give them.
TEST(Float32Base64, IsLittleEndianAndPadded) {
  EXPECT_EQ(Float32Base64(std::vector<double>{}), "");
  EXPECT_EQ(Float32Base64(std::vector<double>{1.0}), "AACAPw==");
  EXPECT_EQ(Float32Base64(std::vector<double>{1.0, -2.0}), "AACAPwAAAMA=");
  EXPECT_EQ(Float32Base64(std::vector<double>{1.0, -2.0, 0.1}),
            "AACAPwAAAMDNzMw9");
  EXPECT_EQ(Float32Base64(std::vector<int64_t>{3}), "AABAQA==");
}

TEST(Float32Base64, KeepsWhatIsNotFinite) {
  EXPECT_EQ(Float32Base64(std::vector<double>{kInfinity}), "AACAfw==");
  EXPECT_EQ(Float32Base64(std::vector<double>{1e300}), "AACAfw==");
  EXPECT_EQ(Float32Base64(std::vector<double>{-kInfinity}), "AACA/w==");
  EXPECT_EQ(Float32Base64(
                std::vector<double>{std::numeric_limits<double>::quiet_NaN()}),
            "AADAfw==");
}

TEST(ShortNumber, HasNoMoreDigitsThanItsFloatNeeds) {
  EXPECT_EQ(ShortNumber(0.1).dump(), "0.1");
  EXPECT_EQ(ShortNumber(1.0 / 3).dump(), "0.33333334");
  EXPECT_TRUE(ShortNumber(kInfinity).is_null());
  EXPECT_TRUE(ShortNumber(1e39).is_null());
}

TEST(PageJson, HoldsNothingThatEndsAScriptOrIsNoAscii) {
  const std::string hostile =
      "</script><!--<script>&\"'\xe2\x80\xa8\xe2\x80\xa9\xff";
  const std::string text = PageJson(Json{{hostile, hostile}});
  for (const char c : text) {
    EXPECT_TRUE(c >= 0x20 && c < 0x7f && c != '<' && c != '>' && c != '&') << c;
  }
  EXPECT_THAT(text, HasSubstr("\\u2028"));
  const Json back = Json::parse(text);
  EXPECT_THAT(back.begin().key(), StartsWith("</script><!--<script>&\"'"));
  EXPECT_EQ(back.begin().key(), back.begin().value());
}

TEST(ClippedText, CutsNoCodePoint) {
  EXPECT_EQ(ClippedText("a\xc3\xa9", 3), "a\xc3\xa9");
  EXPECT_EQ(ClippedText("a\xc3\xa9", 2), "a[…]");
  EXPECT_EQ(ClippedText("\xc3\xa9", 1), "[…]");
}

TEST(SpreadRows, HasBothEndsAndEvenSteps) {
  EXPECT_THAT(SpreadRows(0, 3), IsEmpty());
  EXPECT_THAT(SpreadRows(1, 3), ElementsAre(0));
  EXPECT_THAT(SpreadRows(3, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(SpreadRows(9, 3), ElementsAre(0, 4, 8));
  EXPECT_THAT(SpreadRows(100, 2), ElementsAre(0, 99));
}

TEST(PageBudget, WhatDoesNotFitIsLeftOutAndSaid) {
  PageBudget budget(10);
  EXPECT_TRUE(budget.Take(4));
  EXPECT_FALSE(budget.Take(7));
  EXPECT_EQ(budget.left(), 6U);
  EXPECT_EQ(budget.Fit("abcd", "the word"), "abcd");  // with its quotes
  EXPECT_TRUE(budget.Fit("a", "the letter").is_null());
  EXPECT_THAT(budget.Notes(), HasSubstr("leaves out the letter"));
  EXPECT_THAT(budget.Notes(), Not(HasSubstr("the word")));
}

TEST(PageBudget, TextsAreShortenedToWhatIsLeft) {
  PageBudget budget(100);
  const std::string text = budget.Text(std::string(1000, '<'));  // 6 bytes each
  EXPECT_LE(PageJson(Json(text)).size(), 100U);
  EXPECT_THAT(text, HasSubstr("<[…]"));
  EXPECT_THAT(budget.Notes(), HasSubstr("first part"));
}

TEST(PageBudget, NotesAreFewAndEachIsSaidOnce) {
  PageBudget budget(0);
  for (int round = 0; round < 2; ++round) budget.Note("Once.");
  EXPECT_EQ(budget.Notes(), "Once.");
  for (int i = 0; i < 100; ++i) budget.Note(std::to_string(i));
  EXPECT_THAT(budget.Notes(), Not(HasSubstr(std::to_string(kMostNotes))));
}

}  // namespace
}  // namespace isoloss::report::page_values_test
