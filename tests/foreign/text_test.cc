#include "isoloss/foreign/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace isoloss::foreign::text_test {
namespace {

using ::testing::ElementsAre;

TEST(Number, IsReadAsProgramsWriteIt) {
  EXPECT_EQ(ParseNumber("3.86442"), 3.86442);
  EXPECT_EQ(ParseNumber(" 1,234,567.5 "), 1234567.5);
  EXPECT_EQ(ParseNumber("+1.0E-03"), 1e-3);
  EXPECT_EQ(ParseNumber("1e-999"), 0.0);
  EXPECT_EQ(ParseNumber("-1e999"), -INFINITY);
  EXPECT_EQ(ParseNumber("-Infinity"), -INFINITY);
  EXPECT_EQ(ParseNumber("inf"), INFINITY);
  EXPECT_TRUE(std::isnan(*ParseNumber("NaN")));
  for (const char* wrong :
       {"", "N/A", "1.5x", "1,23", "1,2345", "1234,567", "1,,234", ",123",
        "0,001", "-0,125", "1.5,000", "--1", "1 2"}) {
    EXPECT_FALSE(ParseNumber(wrong)) << wrong;
  }
  EXPECT_EQ(ParsePlainNumber("-2.5"), -2.5);
  EXPECT_FALSE(ParsePlainNumber("1,234"));
}

TEST(Number, IsWholeUpToTheMostThatADoubleTells) {
  EXPECT_EQ(ParseWhole("000012"), 12);
  EXPECT_EQ(ParseWhole("9007199254740992"), kMostWhole);
  EXPECT_FALSE(ParseWhole("9007199254740993"));
  EXPECT_FALSE(ParseWhole("1.0"));
}

TEST(Number, IsACountWithinBounds) {
  EXPECT_EQ(CountOf(*LeadingNumber("  4 |")), 4);
  EXPECT_EQ(CountOf(*LeadingNumber("nan")), 0);
  EXPECT_EQ(CountOf(*LeadingNumber("-3")), 0);
  EXPECT_EQ(CountOf(*LeadingNumber("9007199254740992")), 1'000'000'000);
}

TEST(Number, MayHaveAUnitBehindIt) {
  EXPECT_EQ(NumberAfter("time 12.5ms, mfu 3%", "time ")->value, 12.5);
  EXPECT_EQ(NumberAfter("loss 3.25, time", "loss ")->text, "3.25");
  EXPECT_EQ(NumberAfter("tps: 1,234  tflops", "tps:")->value, 1234);
  EXPECT_EQ(NumberAfter("lr=[0.5,0.25]", "lr=[")->value, 0.5);
  EXPECT_FALSE(NumberAfter("xloss 3.25", "loss "));
  // Twice as long would take four times as long.
  EXPECT_FALSE(LeadingNumber(std::string(1000, '1') + std::string(1000, 'x')));
}

TEST(Lines, EndAsAnywhereAndLoseTheirColours) {
  std::vector<std::string> lines;
  ForEachLine("a\r\n\x1B[38;2;1;2;3mb\x1B[0m c\n10%\r20%\rd",
              [&](auto line) { lines.emplace_back(line); });
  EXPECT_THAT(lines, ElementsAre("a", "b c", "10%", "20%", "d"));
}

TEST(Text, MayBeUtf16InBothOrders) {
  const std::string little("\xFF\xFEs\0 \0001\0\xE9\0", 10);
  EXPECT_EQ(Utf8OfUtf16(little), "s 1\xC3\xA9");
  EXPECT_EQ(Utf8OfUtf16(std::string_view("\xFE\xFF\xD8\x3D\xDE\0\xDC", 7)),
            "\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace isoloss::foreign::text_test
