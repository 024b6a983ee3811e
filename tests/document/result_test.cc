#include "isoloss/document/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "result_samples.h"

namespace isoloss::document::result_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const std::vector<Check>& cases) {
  std::vector<std::string> names;
  names.reserve(cases.size());
  for (const Check& one : cases) names.push_back(one.name);
  return names;
}

TEST(Result, IsRedUnlessItPassedOrNothingRestsOnIt) {
  for (const Status status :
       {Status::kSkipped, Status::kPass, Status::kNoticed,
        Status::kInconclusive, Status::kFailure, Status::kError}) {
    const bool red = status == Status::kInconclusive ||
                     status == Status::kFailure || status == Status::kError;
    EXPECT_EQ(IsRed(status), red) << StatusName(status);
  }
}

// A status that nobody set must not look green.
TEST(Result, IsAnErrorUntilItIsSet) {
  EXPECT_EQ(Check{}.status, Status::kError);
  EXPECT_EQ(Result{}.status, Status::kError);
}

TEST(Result, FindingsAreTheSeverestFirst) {
  EXPECT_THAT(NamesOf(FindingsOf(testing::SampleReport().results[0])),
              ElementsAre("valid", "readable", "early_window", "final_window",
                          "held_out", "first", "second"));
  EXPECT_THAT(FindingsOf(testing::SampleReport().results[1]), ElementsAre());
}

TEST(Result, FindingsOfARedSuiteWithoutRedChecksBeginWithItsVerdict) {
  Result result;
  result.status = Status::kInconclusive;
  result.outcome = "INCONCLUSIVE";
  result.headline = "too few seeds";
  result.next = {"train more", "or wait"};
  result.checks = {testing::SampleCase("L1", "first", Status::kNoticed)};

  const std::vector<Check> findings = FindingsOf(result);

  EXPECT_THAT(NamesOf(findings), ElementsAre("verdict", "first"));
  EXPECT_EQ(findings[0].status, Status::kInconclusive);
  EXPECT_EQ(findings[0].statement, "INCONCLUSIVE: too few seeds");
  EXPECT_EQ(findings[0].next, "train more; or wait");
}

// Names are told apart as they are shown: a line end is "\n" in a report.
TEST(Result, NamesOfAReportDiffer) {
  Result result;
  result.name = "a\n";
  result.checks = {testing::SampleCase("L1", "b\n", Status::kPass),
                   testing::SampleCase("L1", "b\\n", Status::kPass),
                   testing::SampleCase("L2", "b\n", Status::kPass),
                   testing::SampleCase("L1", "b\n", Status::kPass)};
  Result other;
  other.name = "a\\n";

  const Report report = MakeReport("isoloss gate", 0, {result, other});

  EXPECT_EQ(report.results[0].name, "a\n");
  EXPECT_EQ(report.results[1].name, "a\\n (2)");
  EXPECT_THAT(NamesOf(report.results[0].checks),
              ElementsAre("b\n", "b\\n (2)", "b\n", "b\n (3)"));
}

TEST(Result, OfAnErrorIsRedAndSaysWhy) {
  const Report report = ErrorReport("isoloss gate", 3, "format",
                                    "a.h5: it is cut off:\nat byte 7.\n");

  ASSERT_EQ(report.results.size(), 1U);
  EXPECT_EQ(report.exit_code, 3);
  EXPECT_EQ(report.results[0].status, Status::kError);
  EXPECT_EQ(report.results[0].headline,
            "isoloss gate has no verdict: a.h5: it is cut off:");
  EXPECT_THAT(report.results[0].reasons, ElementsAre("at byte 7."));
}

}  // namespace
}  // namespace isoloss::document::result_test
