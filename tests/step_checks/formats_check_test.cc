#include "isoloss/step_checks/formats_check.h"

#include <gtest/gtest.h>

namespace isoloss::step_checks::formats_check_test {
namespace {

TEST(CheckFormats, AgreesWithTheDefinitions) {
  ReportSink sink;
  CheckFormats(sink);

  ASSERT_EQ(sink.comparisons().count("formats"), 1U);
  const runlog::OracleRow row = sink.comparisons().at("formats").Row();
  EXPECT_EQ(row.equal, row.elements)
      << "block " << row.worst_row << ", element " << row.worst_column << " is "
      << row.worst_value << ", not " << row.worst_expected;
  EXPECT_GT(row.elements, 40);
}

}  // namespace
}  // namespace isoloss::step_checks::formats_check_test
