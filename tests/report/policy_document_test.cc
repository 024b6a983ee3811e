#include "isoloss/report/policy_document.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"

namespace isoloss::report::policy_document_test {
namespace {

using document::Json;
using document::TextStyle;

using ::testing::HasSubstr;

std::string PolicyText(const TextStyle& style) {
  return document::RenderText(PolicyKeysDocument(), style);
}

Json PolicyJson() { return document::ToJson(PolicyKeysDocument()); }

TEST(PolicyKeysDocument, ShowsInWordsWhatTheJsonHolds) {
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

TEST(PolicyKeysDocument, LinesFit) {
  TextStyle style;
  style.width = 60;
  std::istringstream text(PolicyText(style));

  for (std::string line; std::getline(text, line);) {
    EXPECT_LE(line.size(), 60U) << line;
  }
}

}  // namespace
}  // namespace isoloss::report::policy_document_test
