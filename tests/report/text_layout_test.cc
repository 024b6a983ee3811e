#include "isoloss/report/text_layout.h"

#include <gtest/gtest.h>

#include <string>

namespace isoloss::report {
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

}  // namespace
}  // namespace isoloss::report
