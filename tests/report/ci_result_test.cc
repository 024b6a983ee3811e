#include "isoloss/report/ci_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/ci_samples.h"

namespace isoloss::report {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const std::vector<CiCase>& cases) {
  std::vector<std::string> names;
  names.reserve(cases.size());
  for (const CiCase& one : cases) names.push_back(one.name);
  return names;
}

TEST(CiResult, IsRedUnlessItPassedOrNothingRestsOnIt) {
  for (const CiStatus status :
       {CiStatus::kSkipped, CiStatus::kPass, CiStatus::kNoticed,
        CiStatus::kInconclusive, CiStatus::kFailure, CiStatus::kError}) {
    const bool red = status == CiStatus::kInconclusive ||
                     status == CiStatus::kFailure || status == CiStatus::kError;
    EXPECT_EQ(IsRed(status), red) << CiStatusName(status);
  }
}

// A status that nobody set must not look green.
TEST(CiResult, IsAnErrorUntilItIsSet) {
  EXPECT_EQ(CiCase{}.status, CiStatus::kError);
  EXPECT_EQ(CiSuite{}.status, CiStatus::kError);
}

TEST(CiResult, FindingsAreTheSeverestFirst) {
  EXPECT_THAT(NamesOf(CiFindings(testing::SampleReport().suites[0])),
              ElementsAre("valid", "readable", "early_window", "final_window",
                          "held_out", "first", "second"));
  EXPECT_THAT(CiFindings(testing::SampleReport().suites[1]), ElementsAre());
}

TEST(CiResult, FindingsOfARedSuiteWithoutRedChecksBeginWithItsVerdict) {
  CiSuite suite;
  suite.status = CiStatus::kInconclusive;
  suite.headline = "INCONCLUSIVE: too few seeds";
  suite.next = {"train more", "or wait"};
  suite.cases = {testing::SampleCase("L1", "first", CiStatus::kNoticed)};

  const std::vector<CiCase> findings = CiFindings(suite);

  EXPECT_THAT(NamesOf(findings), ElementsAre("verdict", "first"));
  EXPECT_EQ(findings[0].status, CiStatus::kInconclusive);
  EXPECT_EQ(findings[0].statement, "INCONCLUSIVE: too few seeds");
  EXPECT_EQ(findings[0].next, "train more; or wait");
}

// Names are told apart as they are shown: a line end is "\n" in a report.
TEST(CiResult, NamesOfAReportDiffer) {
  CiSuite suite;
  suite.name = "a\n";
  suite.cases = {testing::SampleCase("L1", "b\n", CiStatus::kPass),
                 testing::SampleCase("L1", "b\\n", CiStatus::kPass),
                 testing::SampleCase("L2", "b\n", CiStatus::kPass),
                 testing::SampleCase("L1", "b\n", CiStatus::kPass)};
  CiSuite other;
  other.name = "a\\n";

  const CiReport report = MakeCiReport("isoloss gate", 0, {suite, other});

  EXPECT_EQ(report.suites[0].name, "a\n");
  EXPECT_EQ(report.suites[1].name, "a\\n (2)");
  EXPECT_THAT(NamesOf(report.suites[0].cases),
              ElementsAre("b\n", "b\\n (2)", "b\n", "b\n (3)"));
}

TEST(CiResult, OfAnErrorIsRedAndSaysWhy) {
  const CiReport report = CiErrorReport("isoloss gate", 3, "format",
                                        "a.h5: it is cut off:\nat byte 7.\n");

  ASSERT_EQ(report.suites.size(), 1U);
  EXPECT_EQ(report.exit_code, 3);
  EXPECT_EQ(report.suites[0].status, CiStatus::kError);
  EXPECT_EQ(report.suites[0].headline,
            "ERROR: isoloss gate has no verdict: a.h5: it is cut off:");
  EXPECT_THAT(report.suites[0].why, ElementsAre("at byte 7."));
}

}  // namespace
}  // namespace isoloss::report
