#include "roff_text.h"

#include <gtest/gtest.h>

namespace isoloss::cli {
namespace {

TEST(RoffText, EscapesWhatRoffWouldObey) {
  // Requests, in the first line and in others.
  EXPECT_EQ(RoffText(".so /etc/passwd\n.de x"), "\\&.so /etc/passwd\n\\&.de x");
  EXPECT_EQ(RoffText("'br"), "\\(aqbr");
  EXPECT_EQ(RoffText("a.b ."), "a.b .");
  // Escapes.
  EXPECT_EQ(RoffText("C:\\fB\\n"), "C:\\(rsfB\\(rsn");
}

TEST(RoffText, KeepsCharactersThatAreDrawnAsOthers) {
  EXPECT_EQ(RoffText("--out"), "\\-\\-out");
  EXPECT_EQ(RoffText("`a` '\"b\"' ~/x^2"),
            "\\(gaa\\(ga \\(aq\\(dqb\\(dq\\(aq \\(ti/x\\(ha2");
}

TEST(RoffText, WritesOtherCharactersByTheirCodePoints) {
  EXPECT_EQ(RoffText("\u00b1 \u2264 \U0001F600"),
            "\\[u00B1] \\[u2264] \\[u1F600]");
}

TEST(RoffText, ShowsWhatIsNotPrintable) {
  EXPECT_EQ(RoffText("a\x1b[2J"), "a\\(rsx1b[2J");
  EXPECT_EQ(RoffText("\xff"), "\\(rsxff");
  EXPECT_EQ(RoffText(""), "");
}

}  // namespace
}  // namespace isoloss::cli
