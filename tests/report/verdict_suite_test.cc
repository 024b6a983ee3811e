#include "isoloss/report/verdict_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gate/judged_runs.h"

namespace isoloss::report {
namespace {

using ::testing::HasSubstr;

CiSuite SuiteOfRuns(const std::vector<double>& percent) {
  return SuiteOf(gate::JudgeRuns(testing::SyntheticExperiment(percent), {}),
                 "e.toml");
}

const CiCase& CaseOf(const CiSuite& suite, const std::string& name) {
  const auto found = std::ranges::find(suite.cases, name, &CiCase::name);
  EXPECT_NE(found, suite.cases.end()) << name;
  return *found;
}

TEST(VerdictSuite, SaysWhatTheVerdictSays) {
  const CiSuite pass = SuiteOfRuns({0.05, 0.06, 0.07, 0.04});

  EXPECT_EQ(pass.status, CiStatus::kPass);
  EXPECT_EQ(pass.exit_code, 0);
  EXPECT_EQ(pass.file, "e.toml");
  EXPECT_THAT(pass.name, HasSubstr("mxfp8 against bf16"));
  EXPECT_EQ(SuiteOfRuns({1, 1.1, 1.2, 1}).status, CiStatus::kFailure);
  // One pair shows nothing.
  const CiSuite one = SuiteOfRuns({0.05});
  EXPECT_EQ(one.status, CiStatus::kInconclusive);
  EXPECT_EQ(one.exit_code, 4);
}

TEST(VerdictSuite, HasTheNumbersOfEachCheck) {
  const CiSuite suite = SuiteOfRuns({0.05, 0.06, 0.07, 0.04});
  const CiCase& final_window = CaseOf(suite, "final_window");

  std::vector<std::string> names;
  for (const CiNumber& number : final_window.numbers) {
    names.push_back(number.name);
  }
  EXPECT_THAT(
      names, ::testing::IsSupersetOf({"statistic", "limit", "lower", "upper"}));
  // (0.05 + 0.06 + 0.07 + 0.04) / 4 = 0.055, made of rounded losses.
  EXPECT_NEAR(final_window.numbers[0].value, 0.055, 1e-6);
  EXPECT_EQ(final_window.numbers[0].unit, "%");
}

// What was not asked must not look like a pass.
TEST(VerdictSuite, LevelsWithoutEvidenceAreSkipped) {
  const CiSuite suite = SuiteOfRuns({0.05, 0.06, 0.07, 0.04});

  EXPECT_TRUE(std::ranges::any_of(suite.cases, [](const CiCase& one) {
    return one.group == "L2" && one.status == CiStatus::kSkipped;
  }));
}

TEST(VerdictSuite, AFailedCheckOnWhichNothingRestsIsNoticed) {
  gate::Judgement judgement = gate::JudgeRuns(
      testing::SyntheticExperiment({0.05, 0.06, 0.07, 0.04}), {});
  gate::Check& check = judgement.checks.front();
  check.gates = false;
  const std::string name = check.name;
  EXPECT_EQ(CaseOf(SuiteOf(judgement, ""), name).status, CiStatus::kSkipped);

  check.outcome = gate::Outcome::kFail;

  EXPECT_EQ(CaseOf(SuiteOf(judgement, ""), name).status, CiStatus::kNoticed);
}

}  // namespace
}  // namespace isoloss::report
