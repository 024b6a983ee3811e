#include "isoloss/gate/policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isoloss/base/error.h"

namespace isoloss::gate::policy_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  try {
    ParsePolicy(text, "gate.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Policy, DefaultsLieWithinTheirRangesAndSurviveARoundTrip) {
  const std::string text = FormatPolicy(Policy());

  EXPECT_EQ(FormatPolicy(ParsePolicy(text, "gate.toml")), text);
  EXPECT_EQ(FormatPolicy(ParsePolicy("", "gate.toml")), text);
}

TEST(Policy, ReadsEveryKey) {
  const Policy policy = ParsePolicy(
      "question = 'regression'\nmargin_percent = 1\nalpha = 0.01\n"
      "power = 0.9\nwindow_share = 0.5\nmin_seeds = 4\none_sided = true\n",
      "gate.toml");

  EXPECT_EQ(policy.question, compare::Question::kRegression);
  EXPECT_EQ(policy.margin_percent, 1.0);
  EXPECT_EQ(policy.alpha, 0.01);
  EXPECT_EQ(policy.power, 0.9);
  EXPECT_EQ(policy.window_share, 0.5);
  EXPECT_EQ(policy.min_seeds, 4);
  EXPECT_TRUE(policy.one_sided);
}

TEST(Policy, ReadsWhatItFormats) {
  Policy policy;
  policy.question = compare::Question::kRegression;
  policy.levels = {"L2", "L4"};
  policy.null_coverage = 0.999;
  policy.min_members = 40;

  const Policy read = ParsePolicy(FormatPolicy(policy), "gate.toml");

  EXPECT_EQ(FormatPolicy(read), FormatPolicy(policy));
  EXPECT_EQ(read.levels, policy.levels);
  EXPECT_TRUE(ParsePolicy("levels = 'auto'", "gate.toml").levels.empty());
}

TEST(Policy, NamesLineAndNearestKeyOfAnUnknownOne) {
  EXPECT_THAT(ErrorOf("alpha = 0.05\nmargin_procent = 0.25\n"),
              AllOf(HasSubstr("gate.toml:2:1: unknown key `margin_procent`"),
                    HasSubstr("Did you mean `margin_percent`?")));
}

TEST(Policy, NamesLineAndRuleOfABadValue) {
  EXPECT_EQ(ErrorOf("\nmargin_percent = 0"),
            "gate.toml:2:18: `margin_percent` is 0, but must be a number in "
            "(0, 100) (% of the baseline's loss). Correct it or leave it out "
            "for 0.25.");
  EXPECT_THAT(ErrorOf("margin_percent = 9223372036854775807"),
              HasSubstr("`margin_percent` is 922337203685"));
  EXPECT_THAT(ErrorOf("alpha = nan"), HasSubstr("`alpha` is nan"));
  EXPECT_THAT(ErrorOf("alpha = 'x'"), HasSubstr("must be a number"));
  EXPECT_THAT(ErrorOf("power = 0.5"), HasSubstr("in (0.5, 1) (probability)"));
  EXPECT_THAT(ErrorOf("min_seeds = 1"),
              HasSubstr("must be an integer from 2 (seed pairs)"));
  EXPECT_THAT(ErrorOf("min_seeds = 2.5"), HasSubstr("must be an integer"));
  EXPECT_THAT(ErrorOf("one_sided = 1"), HasSubstr("must be true or false"));
  EXPECT_THAT(ErrorOf("question = 'speed'"),
              HasSubstr("must be one of precision, regression."));
  for (const char* levels : {"'all'", "[]", "['L6']", "['L2', 'L2']", "[2]"}) {
    EXPECT_THAT(ErrorOf(fmt::format("levels = {}", levels)),
                HasSubstr("but must be \"auto\" or a list of some of L0"));
  }
  EXPECT_THAT(ErrorOf("levels = ['L6']"), HasSubstr("`levels` holds \"L6\""));
  EXPECT_THAT(ErrorOf("probe_cases = ['tials']"),
              AllOf(HasSubstr("must be a list of some of plain, hot_row"),
                    HasSubstr("Did you mean `tails`?")));
}

TEST(Policy, NamesTheLineOfMalformedToml) {
  EXPECT_THAT(ErrorOf("alpha = 0.05\npower = = 1\n"),
              HasSubstr("gate.toml:2:9: "));
  EXPECT_THAT(ErrorOf("alpha = 0.05\nalpha = 0.05\n"),
              HasSubstr("gate.toml:2:9: "));
}

TEST(ReadPolicy, NamesAFileThatCannotBeRead) {
  try {
    ReadPolicy("/no/such/gate.toml");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/no/such/gate.toml"));
  }
}

}  // namespace
}  // namespace isoloss::gate::policy_test
