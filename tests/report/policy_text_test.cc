#include "isoloss/report/policy_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace isoloss::report {
namespace {

using document::Json;
using document::TextStyle;

using ::testing::HasSubstr;

TEST(PolicyText, ShowsInWordsWhatTheJsonHolds) {
  std::string words;
  std::istringstream text(PolicyText(TextStyle{}));
  for (std::string word; text >> word;) words += " " + word;
  const Json keys = PolicyJson()["keys"];

  EXPECT_GT(keys.size(), 20U);
  for (const Json& key : keys) {
    const std::string unit = key["unit"];
    EXPECT_THAT(
        words,
        HasSubstr(fmt::format(
            " {} = {}{} {} values: {}", key["name"].get<std::string>(),
            key["default"].get<std::string>(), unit.empty() ? "" : " # " + unit,
            key["meaning"].get<std::string>(),
            key["values"].get<std::string>())));
  }
}

TEST(PolicyText, LinesFit) {
  TextStyle style;
  style.width = 60;
  std::istringstream text(PolicyText(style));

  for (std::string line; std::getline(text, line);) {
    EXPECT_LE(line.size(), 60U) << line;
  }
}

}  // namespace
}  // namespace isoloss::report
