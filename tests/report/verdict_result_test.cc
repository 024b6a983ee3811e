#include "isoloss/report/verdict_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gate/judged_runs.h"

namespace isoloss::report::verdict_result_test {
namespace {

using ::testing::HasSubstr;

document::Result ResultOfRuns(const std::vector<double>& percent) {
  return ResultOf(
      gate::JudgeRuns(test_support::SyntheticExperiment(percent), {}),
      "e.toml");
}

const document::Check& CaseOf(const document::Result& result,
                              const std::string& name) {
  const auto found =
      std::ranges::find(result.checks, name, &document::Check::name);
  EXPECT_NE(found, result.checks.end()) << name;
  return *found;
}

TEST(VerdictResult, SaysWhatTheVerdictSays) {
  const document::Result pass = ResultOfRuns({0.05, 0.06, 0.07, 0.04});

  EXPECT_EQ(pass.status, document::Status::kPass);
  EXPECT_EQ(pass.exit_code, 0);
  EXPECT_EQ(pass.file, "e.toml");
  EXPECT_THAT(pass.name, HasSubstr("mxfp8 against bf16"));
  EXPECT_EQ(ResultOfRuns({1, 1.1, 1.2, 1}).status, document::Status::kFailure);
  // One pair shows nothing.
  const document::Result one = ResultOfRuns({0.05});
  EXPECT_EQ(one.status, document::Status::kInconclusive);
  EXPECT_EQ(one.exit_code, 4);
}

TEST(VerdictResult, HasTheNumbersOfEachCheck) {
  const document::Result result = ResultOfRuns({0.05, 0.06, 0.07, 0.04});
  const document::Check& final_window = CaseOf(result, "final_window");

  std::vector<std::string> names;
  for (const document::Figure& number : final_window.numbers) {
    names.push_back(number.name);
  }
  EXPECT_THAT(
      names, ::testing::IsSupersetOf({"statistic", "limit", "lower", "upper"}));
  // (0.05 + 0.06 + 0.07 + 0.04) / 4 = 0.055, made of rounded losses.
  EXPECT_NEAR(final_window.numbers[0].value, 0.055, 1e-6);
  EXPECT_EQ(final_window.numbers[0].unit, "%");
}

// What was not asked must not look like a pass.
TEST(VerdictResult, LevelsWithoutEvidenceAreSkipped) {
  const document::Result result = ResultOfRuns({0.05, 0.06, 0.07, 0.04});

  EXPECT_TRUE(
      std::ranges::any_of(result.checks, [](const document::Check& one) {
        return one.group == "L2" && one.status == document::Status::kSkipped;
      }));
}

TEST(VerdictResult, AFailedCheckOnWhichNothingRestsIsNoticed) {
  gate::Judgement judgement = gate::JudgeRuns(
      test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04}), {});
  gate::Check& check = judgement.checks.front();
  check.gates = false;
  const std::string name = check.name;
  EXPECT_EQ(CaseOf(ResultOf(judgement, ""), name).status,
            document::Status::kSkipped);

  check.outcome = gate::Outcome::kFail;

  EXPECT_EQ(CaseOf(ResultOf(judgement, ""), name).status,
            document::Status::kNoticed);
}

}  // namespace
}  // namespace isoloss::report::verdict_result_test
