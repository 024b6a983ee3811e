#include "isoloss/report/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "report/ci_samples.h"

// How GitHub's renderer shows it: tests/cli/ci_formats_test.py.
namespace isoloss::report {
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
  EXPECT_LT(text.find("final_window"), text.find("complete"));
}

TEST(Markdown, FitsIntoACommentAndSaysWhatItLeftOut) {
  CiSuite suite;
  for (int i = 0; i < 2000; ++i) {
    suite.cases.push_back(testing::SampleCase("L1", "a", CiStatus::kFailure));
  }

  const std::string text =
      RenderMarkdown(MakeCiReport("isoloss gate", 1, {suite}));

  EXPECT_LE(text.size(), kMostMarkdown);
  EXPECT_GT(text.size(), kMostMarkdown * 9 / 10);
  EXPECT_THAT(text, HasSubstr(" parts were left out"));
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
}  // namespace isoloss::report
