#include "isoloss/document/text_layout.h"

#include <gtest/gtest.h>

#include <string>

namespace isoloss::document::text_layout_test {
namespace {

constexpr TextStyle kNarrow = {.width = 20};

TEST(WrapProse, WrapsSentencesAndKeepsTheirIndent) {
  EXPECT_EQ(WrapProse("One two three four five six.\n\n"
                      "  Not safe: one two three.\nEnd",
                      kNarrow),
            "One two three four\nfive six.\n\n"
            "  Not safe: one two\n  three.\nEnd");
}

TEST(WrapProse, LeavesRowsOfTables) {
  const std::string table =
      "name   value   another value of it\n  a  1  2 and some words more\n";
  EXPECT_EQ(WrapProse(table, kNarrow), table);
}

TEST(WrapProse, KeepsEmptyLinesAndLineEnds) {
  for (const char* text : {"", "\n", "a\n", "\n\na", "  \n"}) {
    EXPECT_EQ(WrapProse(text, kNarrow), text);
  }
}

TEST(Shortened, TextIsCutBetweenCharacters) {
  EXPECT_EQ(Shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(Shortened("abcdefg", 6), "abc...");
  // Two bytes each: the third character would end at byte 6.
  EXPECT_EQ(Shortened("\u00e4\u00e4\u00e4\u00e4", 6), "\u00e4...");
}

}  // namespace
}  // namespace isoloss::document::text_layout_test
