#include "isoloss/document/junit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "result_samples.h"

// That real parsers and the schema take it: tests/cli/ci_formats_test.py.
namespace isoloss::document::junit_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Junit, CountsFailuresErrorsAndSkippedEachForItself) {
  const std::string xml = RenderJunit(testing::SampleReport());

  EXPECT_THAT(xml, StartsWith(kJunitFirstLine));
  EXPECT_THAT(xml, HasSubstr("<testsuites name=\"isoloss verify\" "
                             "tests=\"12\" failures=\"4\" errors=\"2\">"));
  EXPECT_THAT(xml, HasSubstr("tests=\"10\" failures=\"4\" errors=\"2\" "
                             "skipped=\"3\" file=\"e/experiment.toml\">"));
  EXPECT_THAT(xml, HasSubstr("tests=\"2\" failures=\"0\" errors=\"0\" "
                             "skipped=\"0\">"));
}

TEST(Junit, InconclusiveIsAFailureOfItsOwnType) {
  EXPECT_THAT(RenderJunit(testing::SampleReport()),
              HasSubstr("<failure type=\"inconclusive\" "));
}

TEST(Junit, NumbersArePropertiesOfTheirCheck) {
  const std::string xml = RenderJunit(testing::SampleReport());

  EXPECT_THAT(xml, HasSubstr("name=\"L5 final_window statistic\" "
                             "value=\"0.4 %\""));
  EXPECT_THAT(xml, HasSubstr("name=\"L5 final_window coverage\" "
                             "value=\"0.9\""));
  EXPECT_THAT(xml, HasSubstr("name=\"L3 valid statistic\" "
                             "value=\"nan nats\""));
}

TEST(Junit, SaysHowManyFindingsItLeavesOut) {
  Result suite;
  suite.checks = {testing::SampleCase("L1", "a", Status::kFailure)};
  for (int i = 0; i < 25; ++i) {
    suite.checks[0].findings.push_back("finding " + std::to_string(i));
  }

  const std::string xml = RenderJunit(MakeReport("isoloss gate", 1, {suite}));

  EXPECT_THAT(xml, HasSubstr("- finding 19\n- and 5 more\n"));
  EXPECT_THAT(xml, Not(HasSubstr("finding 20")));
}

TEST(Junit, IsBoundedWhateverTheTextIs) {
  // Fifteen cases of at most 10,000 bytes twice, each byte of which is at most
  // six of XML ("&quot;").
  EXPECT_LT(RenderJunit(testing::HostileReport()).size(), 15U * 2 * 60000);
}

}  // namespace
}  // namespace isoloss::document::junit_test
