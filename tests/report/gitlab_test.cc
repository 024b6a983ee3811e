#include "isoloss/report/gitlab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "report/ci_samples.h"

// That a real parser of OpenMetrics takes it: tests/cli/ci_formats_test.py.
namespace isoloss::report {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

nlohmann::json IssuesOf(const CiReport& report) {
  return nlohmann::json::parse(RenderCodeQuality(report));
}

TEST(CodeQuality, OrdersSeveritiesAsCiStatuses) {
  std::vector<std::string> severities;
  for (const auto& issue : IssuesOf(testing::SampleReport())) {
    severities.push_back(issue["severity"]);
  }

  EXPECT_THAT(severities, ElementsAre("blocker", "blocker", "critical",
                                      "critical", "major", "minor", "minor"));
}

// The keys that GitLab documents; it ignores an issue that lacks one.
TEST(CodeQuality, HasEveryKeyThatGitlabReads) {
  for (const CiReport& report :
       {testing::SampleReport(), testing::HostileReport()}) {
    std::set<std::string> fingerprints;
    const nlohmann::json issues = IssuesOf(report);
    for (const auto& issue : issues) {
      EXPECT_TRUE(issue["description"].is_string());
      EXPECT_THAT(issue["check_name"].get<std::string>(),
                  StartsWith(kCodeQualityPrefix));
      EXPECT_FALSE(issue["location"]["path"].get<std::string>().empty());
      EXPECT_EQ(issue["location"]["lines"]["begin"], 1);
      fingerprints.insert(issue["fingerprint"]);
    }
    EXPECT_EQ(fingerprints.size(), issues.size());
  }
}

TEST(CodeQuality, FingerprintsDoNotDependOnWhatWasMeasured) {
  CiReport report = testing::SampleReport();
  report.suites[0].cases[7].statement = "another value";
  report.suites[0].cases[7].numbers[0].value = 7;

  EXPECT_EQ(IssuesOf(report)[3]["fingerprint"],
            IssuesOf(testing::SampleReport())[3]["fingerprint"]);
}

TEST(Metrics, CountChecksAndGiveTheirNumbers) {
  const std::string text = RenderMetrics(testing::SampleReport());

  EXPECT_THAT(text, StartsWith(std::string(kMetricsFirstLine) +
                               "isoloss_exit_code 1\n"));
  EXPECT_THAT(text, HasSubstr("isoloss_checks{suite=\"e: mxfp8 against bf16\","
                              "status=\"inconclusive\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("isoloss_check_statistic{suite=\"e: mxfp8 "
                              "against bf16\",group=\"L5\",check=\""
                              "final_window\",unit=\"%\"} 0.4\n"));
  for (const char* value : {"unit=\"nats\"} NaN\n", "unit=\"nats\"} +Inf\n",
                            "unit=\"nats\"} -Inf\n"}) {
    EXPECT_THAT(text, HasSubstr(value));
  }
  EXPECT_THAT(text, EndsWith("# EOF\n"));
}

}  // namespace
}  // namespace isoloss::report
