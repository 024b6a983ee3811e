#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/foreign/json.h"

namespace isoloss::foreign::foreign_json_test {
namespace {

using ::testing::HasSubstr;

TEST(Json, HasNumbersThatJsonDoesNotKnow) {
  const nlohmann::json json =
      ParseJson(R"({"a": [NaN, -Infinity, Infinity], "NaN \" [": 1})");
  EXPECT_TRUE(std::isnan(*NumberOf(json["a"][0])));
  EXPECT_EQ(NumberOf(json["a"][1]), -INFINITY);
  EXPECT_EQ(NumberOf(json["a"][2]), INFINITY);
  EXPECT_EQ(json["NaN \" ["], 1);
  EXPECT_FALSE(NumberOf(nlohmann::json("2.5")));
}

TEST(Json, IsDiscardedWithAReason) {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_FALSE(ParseJson(deep.substr(1, 128)).is_discarded());
  EXPECT_TRUE(ParseJson(deep).is_discarded());
  EXPECT_THAT(JsonFault(deep), HasSubstr("nests 65 levels"));
  EXPECT_THAT(JsonFault(R"({"a": [1, NaN, 2)"),
              HasSubstr("ends within a value, after 16 bytes"));
  EXPECT_THAT(JsonFault(R"({"a": -Infinity, "b" 2})"),
              HasSubstr("line 1 has `2`, where JSON has another character"));
  EXPECT_THAT(JsonFault("{\n  // a note\n  \"a\": 1}"),
              HasSubstr("line 2 has a comment"));
  EXPECT_THAT(JsonFault("{\"a\": [1,\n 2,\n ]}"),
              HasSubstr("line 3 has `]` after a comma"));
  EXPECT_THAT(JsonFault("{'a': 1}"), HasSubstr("line 1 has a single quote"));
  EXPECT_EQ(JsonFault(R"({"a": [1, NaN]})"), "");
}

TEST(Json, TakesBoundedMemory) {
  std::string many = "[";
  for (int i = 0; i < 16'000'001; ++i) many += "1,";
  many += "1]";
  EXPECT_TRUE(ParseJson(many).is_discarded());
  EXPECT_THAT(JsonFault(many), HasSubstr("values, and 16000000 are read"));
  std::string blank((1 << 20) + 4, '\r');
  blank.front() = '[';
  blank.replace(blank.size() - 2, 2, "1]");
  EXPECT_TRUE(ParseJson(blank).is_discarded());
  EXPECT_THAT(JsonFault(blank), HasSubstr("blanks in a row"));
}

TEST(Whole, IsTakenFromNumbersOnly) {
  EXPECT_EQ(WholeOf(31.0), 31);
  EXPECT_EQ(WholeOf(-3), -3);
  EXPECT_FALSE(WholeOf(2.5));
  EXPECT_FALSE(WholeOf("3"));
  EXPECT_FALSE(WholeOf(uint64_t{1} << 63));
}

}  // namespace
}  // namespace isoloss::foreign::foreign_json_test
