#include "isoloss/estimators/indicator_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::estimators::indicator_record_test {
namespace {

std::vector<IndicatorRecord> Samples() {
  IndicatorRecord first{.step = 1};
  for (size_t i = 0; i < kRecorded; ++i) {
    first.values[i] = 1.0 / (3 + static_cast<double>(i));
  }
  IndicatorRecord second{.step = 12};
  second.values.fill(std::nan(""));
  second.values[0] = std::numeric_limits<double>::infinity();
  second.values[1] = 5e-324;
  return {first, second};
}

TEST(Records, ComeBackToTheBit) {
  const std::string text = FormatRecords(Samples());

  const std::vector<IndicatorRecord> back = ParseRecords(text, "a.csv");

  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].values, Samples()[0].values);
  EXPECT_EQ(back[1].step, 12);
  EXPECT_EQ(back[1].values[0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(back[1].values[1], 5e-324);
  EXPECT_TRUE(std::isnan(back[1].values[2]));
  EXPECT_EQ(FormatRecords(back), text);
  EXPECT_TRUE(ParseRecords(FormatRecords({}), "a.csv").empty());
}

TEST(Records, RefuseWhatWasNotWritten) {
  const std::string text = FormatRecords(Samples());
  const std::string first_line = text.substr(0, text.find('\n') + 1);
  const std::string eight = ",1,1,1,1,1,1,1,1";
  for (const std::string& bad :
       {std::string(), std::string("step\n"), text.substr(0, text.size() - 1),
        first_line + "1" + eight, first_line + "0" + eight + "\n",
        first_line + "2" + eight + "\n2" + eight + "\n",
        first_line + "1" + eight + ",1\n", first_line + "1,1,1\n",
        first_line + "1" + eight + ",\n", first_line + "1 " + eight + "\n",
        first_line + "\n", first_line + "1,,1,1,1,1,1,1,1\n"}) {
    EXPECT_THROW(ParseRecords(bad, "a.csv"), Error) << bad;
  }
  EXPECT_EQ(ParseRecords(first_line + "1" + eight + "\n", "a.csv").size(), 1u);
}

}  // namespace
}  // namespace isoloss::estimators::indicator_record_test
