#include "isoloss/report/format_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace isoloss::report::format_text_test {
namespace {

using document::Json;
using document::TextStyle;

using formats::AllFormats;
using formats::Format;
using formats::FormatByName;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr TextStyle kAscii = {.width = 80, .ascii = true};

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(FormatText, OfE2m1IsDrawnByHand) {
  // 4 binades of 20 columns: 0.5 begins the first one; of the others, the
  // second value lies at 20 log2(1.5) = 11.7. In the table, 32 log2(1.5)
  // = 18.7.
  const std::vector<std::string> lines =
      Lines(RenderFormat(FormatByName("e2m1"), kAscii));

  const std::vector<std::string> expected = {
      "e2m1: 4 bits, sign-exponent-mantissa 1-2-1, bias 1",
      "largest          0x1.8p+2 = 6",
      "least normal     0x1p+0 = 1",
      "least subnormal  0x1p-1 = 0.5",
      "specials         +0 and -0",
      "finite           16 of 16 codes, 15 values",
      "dynamic range    21.6 dB, 3.6 binades",
      "of normal ones   15.6 dB, 2.6 binades",
      "@                   @          @        @          @        @          "
      "@",
      "|2^-1               |2^0                                    |2^2",
      "2^-1         1  2^-1            50 %  @",
      "2^0          2  2^-1            25 %  @                 @",
      "2^1          2  2^0             25 %  @                 @",
      "2^2          2  2^1             25 %  @                 @"};
  EXPECT_THAT(lines, IsSupersetOf(expected));
}

TEST(FormatText, SpecialsNameTheirCodes) {
  const auto text = [](std::string_view name) {
    return RenderFormat(FormatByName(name), kAscii);
  };

  EXPECT_THAT(text("e4m3"), HasSubstr("NaN 0x7f, 0xff; +0 and -0"));
  EXPECT_THAT(text("e5m2"),
              HasSubstr("infinity 0x7c, 0xfc; NaN 0x7d to 0x7f, 0xfd to 0xff"));
  EXPECT_THAT(text("int8"), HasSubstr("one zero; 0x80 is -2"));
  EXPECT_THAT(text("fp16"), HasSubstr("infinity 0x7c00, 0xfc00"));
}

TEST(FormatText, DecimalsAreExact) {
  // 2^-133 has 94 digits, on two lines.
  std::string digits;
  for (const std::string& line :
       Lines(RenderFormat(FormatByName("bf16"), kAscii))) {
    if (line.starts_with("least subnormal")) {
      digits = line.substr(line.find("= ") + 2);
    } else if (line.starts_with("  ") && !digits.empty() &&
               digits.find('e') == std::string::npos) {
      digits += line.substr(17);
    }
  }

  EXPECT_EQ(digits,
            "9.1835496157991211560057541970487943579583246622819337617871"
            "2270530013483949005603790283203125e-41");
}

TEST(FormatText, NoLineIsWiderThanTheTerminal) {
  for (const int width : {60, 80, 100}) {
    const TextStyle style = {.width = width, .ascii = true};
    std::string text = RenderFormats(AllFormats(), style);
    for (const Format* format : AllFormats()) {
      text += RenderFormat(*format, style);
    }
    for (const std::string& line : Lines(text)) {
      if (width >= 80) {
        EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
      }
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

TEST(FormatText, ListHasEachFormatAndItsSource) {
  const std::string text = RenderFormats(AllFormats(), kAscii);

  for (const Format* format : AllFormats()) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(format->name) + " "));
    EXPECT_THAT(text, HasSubstr(std::string(format->source.substr(0, 12))));
  }
}

TEST(FormatJson, HoldsWhatIsPrinted) {
  const Json e4m3 = FormatJson(FormatByName("e4m3"));
  const Json int8 = FormatJson(FormatByName("int8"));

  EXPECT_EQ(e4m3["name"], "e4m3");
  EXPECT_EQ(e4m3["max"], 448);
  EXPECT_EQ(e4m3["min_normal"], 0x1p-6);
  EXPECT_EQ(e4m3["min_subnormal"], 0x1p-9);
  EXPECT_EQ(e4m3["finite_codes"], 254);
  EXPECT_EQ(e4m3["values"], 253);
  // 20 log10(448 * 512)
  EXPECT_NEAR(e4m3["dynamic_range_db"].get<double>(), 107.211, 1e-3);
  EXPECT_EQ(e4m3["binades"].size(), 18u);
  EXPECT_EQ(e4m3["binades"].back()["spacing"], 32);
  EXPECT_EQ(e4m3["binades"].back()["worst_relative_error"], 0.0625);
  EXPECT_TRUE(int8["min_normal"].is_null());
  EXPECT_EQ(int8["twos_complement"], true);
}

}  // namespace
}  // namespace isoloss::report::format_text_test
