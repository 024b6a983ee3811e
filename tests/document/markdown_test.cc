#include "isoloss/document/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "result_samples.h"

// How GitHub's renderer shows it: tests/cli/ci_formats_test.py.
namespace isoloss::document::markdown_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Markdown, BeginsWithTheVerdictsTheSeverestFirst) {
  const std::string text = RenderMarkdown(testing::SampleReport());

  EXPECT_THAT(text, StartsWith(kMarkdownFirstLine));
  EXPECT_LT(text.find("FAIL: mxfp8"), text.find("PASS: null"));
  EXPECT_LT(text.find("PASS: null"), text.find("**Why**"));
}

TEST(Markdown, ShowsNumbersOfAFailureBeforeThePasses) {
  const std::string text = RenderMarkdown(testing::SampleReport());

  EXPECT_THAT(text, HasSubstr("0.4 % | 0.25 % | 0.35 % to 0.45 % |"));
  EXPECT_LT(text.find("final_window"), text.find("<details>"));
  EXPECT_LT(text.find("<details><summary>Passed: 1, skipped: 1<"),
            text.find("complete"));
}

TEST(Markdown, FitsIntoACommentAndSaysWhatItLeftOut) {
  Result suite;
  for (int i = 0; i < 2000; ++i) {
    suite.checks.push_back(testing::SampleCase(
        "L1", "a", i < 10 ? Status::kFailure : Status::kPass));
  }

  const std::string text =
      RenderMarkdown(MakeReport("isoloss gate", 1, {suite}));

  EXPECT_LE(text.size(), kMostMarkdown);
  EXPECT_GT(text.size(), kMostMarkdown * 9 / 10);
  EXPECT_THAT(text, HasSubstr(" parts were left out"));
  // The limit lies within the folded table, which ends nevertheless.
  EXPECT_LT(text.find("<details>"), text.find("</details>"));
  EXPECT_NE(text.find("</details>"), text.npos);
  EXPECT_THAT(RenderMarkdown(testing::SampleReport()),
              Not(HasSubstr("left out")));
}

TEST(Markdown, MentionsNobodyAndRefersToNothing) {
  const std::string text = RenderMarkdown(testing::HostileReport());

  for (const char* mark : {"@octocat", "#1 ", "!2", "GH-3", "https://", "www.e",
                           "<script", "|a|b|", "`t`", "[l]"}) {
    EXPECT_THAT(text, Not(HasSubstr(mark)));
  }
}

}  // namespace
}  // namespace isoloss::document::markdown_test
