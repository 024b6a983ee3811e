// No input that is broken in any way may pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "bad_inputs.h"

namespace isoloss::gate::fail_closed_test {
namespace {

using ::testing::HasSubstr;

class FailClosedTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(FailClosedTest, GivesTheStatedOutcomeAndMessage) {
  Runs runs = HealthyRuns();
  GetParam().spoil(runs);

  const Judgement judgement = JudgeRuns(runs);

  EXPECT_EQ(judgement.outcome, GetParam().outcome);
  EXPECT_NE(ExitCode(judgement.outcome), 0);
  const Check& check = CheckNamed(judgement, GetParam().check);
  EXPECT_EQ(check.outcome, GetParam().outcome);
  EXPECT_THAT(check.quantity + " next: " + check.next,
              HasSubstr(GetParam().message));
}

std::string NameOf(const ::testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(NotFinite, FailClosedTest,
                         ::testing::ValuesIn(kNotFinite), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongSteps, FailClosedTest,
                         ::testing::ValuesIn(kWrongSteps), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongSeeds, FailClosedTest,
                         ::testing::ValuesIn(kWrongSeeds), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongConfiguration, FailClosedTest,
                         ::testing::ValuesIn(kWrongConfiguration), NameOf);
INSTANTIATE_TEST_SUITE_P(WrongRecipe, FailClosedTest,
                         ::testing::ValuesIn(kWrongRecipe), NameOf);

}  // namespace
}  // namespace isoloss::gate::fail_closed_test
