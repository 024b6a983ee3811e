#include "isoloss/base/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace isoloss::printable_test {
namespace {

using namespace std::string_view_literals;

struct Shown {
  std::string_view text;
  std::string_view shown;
};

class PrintableTest : public ::testing::TestWithParam<Shown> {};

TEST_P(PrintableTest, EscapesWhatATerminalObeysAndNothingElse) {
  EXPECT_EQ(Printable(GetParam().text), GetParam().shown);
  EXPECT_EQ(Printable(Printable(GetParam().text)), GetParam().shown);
}

INSTANTIATE_TEST_SUITE_P(
    Kept, PrintableTest,
    ::testing::Values(Shown{"", ""}, Shown{"layers.1.moe", "layers.1.moe"},
                      Shown{"~ \\ \"", "~ \\ \""},
                      // The ends of each length of UTF-8 (Unicode 15, table
                      // 3-7), and the code points around the surrogates.
                      Shown{"\u00a0\u07ff", "\u00a0\u07ff"},
                      Shown{"\u0800\ud7ff\ue000\uffff",
                            "\u0800\ud7ff\ue000\uffff"},
                      Shown{"\U00010000\U0010ffff", "\U00010000\U0010ffff"}));

INSTANTIATE_TEST_SUITE_P(
    Controls, PrintableTest,
    ::testing::Values(Shown{"\0\x1f\x7f"sv, "\\x00\\x1f\\x7f"},
                      Shown{"a\nb\tc\rd", "a\\nb\\tc\\x0dd"},
                      Shown{"\x1b[2J", "\\x1b[2J"},
                      // C1 controls as UTF-8: CSI in one character.
                      Shown{"\xc2\x80\xc2\x9b\xc2\x9f",
                            "\\u{80}\\u{9b}\\u{9f}"},
                      Shown{"\u202e\u2066\u2028\ufeff\u061c\u200e",
                            "\\u{202e}\\u{2066}\\u{2028}\\u{feff}\\u{61c}"
                            "\\u{200e}"}));

INSTANTIATE_TEST_SUITE_P(
    NoUtf8, PrintableTest,
    ::testing::Values(Shown{"\x9b", "\\x9b"},
                      // Overlong forms of / and of ESC.
                      Shown{"\xc0\xaf", "\\xc0\\xaf"},
                      Shown{"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},
                      Shown{"\xf0\x80\x80\x9b", "\\xf0\\x80\\x80\\x9b"},
                      // A surrogate, and beyond the last code point.
                      Shown{"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                      Shown{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
                      // Cut short, at the end and before an ASCII character.
                      Shown{"\xe2\x82", "\\xe2\\x82"},
                      Shown{"\xc3z", "\\xc3z"}));

TEST(PrintableLines, KeepsLinesAndTabsOnly) {
  EXPECT_EQ(PrintableLines("a\n\tb\r\x1b"), "a\n\tb\\x0d\\x1b");
}

TEST(PrintableMessage, LetsNoNameBeginALine) {
  EXPECT_EQ(PrintableMessage("a\nPASS: differs:\n  b\n c\n"),
            "a\\nPASS: differs:\n  b\\n c");
}

// Whatever comes in: no byte goes out that controls anything.
TEST(Printable, LetsNoControlCharacterThrough) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first),
                                static_cast<char>(second), 'x'};
      for (const char c : Printable(text)) {
        const auto byte = static_cast<unsigned char>(c);
        ASSERT_TRUE(byte >= 0x20 && byte != 0x7f) << first << ' ' << second;
      }
    }
  }
}

}  // namespace
}  // namespace isoloss::printable_test
