#include "isoloss/document/github.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "result_samples.h"

namespace isoloss::document::github_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Github, RedIsAnErrorAndWhatWasNoticedAWarning) {
  const auto lines = LinesOf(RenderGithubAnnotations(testing::SampleReport()));

  ASSERT_THAT(lines, SizeIs(7));
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i],
                StartsWith(i < 5 ? "::error title=" : "::warning title="));
  }
  EXPECT_EQ(lines[3],
            "::error title=isoloss%3A e%3A mxfp8 against bf16%3A final loss "
            "(failure),file=e/experiment.toml,line=1::it was measured%0Aseed "
            "1%0Aseed 2%0Anext: look at seed 1");
  EXPECT_THAT(lines[4], HasSubstr("(inconclusive)"));
}

TEST(Github, ShowsTheSeverestTenOfAllSuites) {
  Report report = testing::HostileReport();
  report.results[1].checks[0].status = Status::kError;

  const auto lines = LinesOf(RenderGithubAnnotations(report));

  ASSERT_THAT(lines, SizeIs(kMostAnnotations));
  EXPECT_THAT(lines[0], HasSubstr("(error)"));
  EXPECT_THAT(lines[1], HasSubstr("(failure)"));
}

TEST(Github, TextStartsNoCommandAndEndsNoProperty) {
  for (const std::string& line :
       LinesOf(RenderGithubAnnotations(testing::HostileReport()))) {
    EXPECT_THAT(line, StartsWith("::error title="));
    // Title, file and line: two commas and no colon before the message.
    const std::string head = line.substr(2, line.find("::", 2) - 2);
    EXPECT_EQ(std::ranges::count(head, ','), 2) << head;
    EXPECT_THAT(head, Not(HasSubstr(":")));
    EXPECT_THAT(head, EndsWith(",line=1"));
    EXPECT_THAT(line, HasSubstr("%250A"));
    EXPECT_LT(line.size(), 65536U);
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
}

TEST(Github, APassSaysNothing) {
  Report report = testing::SampleReport();
  report.results.erase(report.results.begin());

  EXPECT_EQ(RenderGithubAnnotations(report), "");
}

TEST(Github, StopsCommandsUntilItsToken) {
  EXPECT_EQ(GithubStop("abc"), "::stop-commands::abc\n");
  EXPECT_EQ(GithubResume("abc"), "::abc::\n");
}

}  // namespace
}  // namespace isoloss::document::github_test
