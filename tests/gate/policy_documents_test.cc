// What is made of the keys of a policy. This writes the schema of verdicts:
// ISOLOSS_WRITE_DOCUMENTS=1 build/release/tests/gate/gate_test
// --gtest_filter="PolicyDocuments*"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/text_file.h"
#include "isoloss/gate/policy.h"

namespace isoloss::gate::policy_documents_test {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHowToWrite =
    "Run it with ISOLOSS_WRITE_DOCUMENTS=1 in the environment, then look at "
    "the difference.";

/// Visitor of a policy that makes the schema of each key.
struct PolicySchemas {
  Json keys = Json::object();

  void Choice(std::string_view key, auto&&, const auto& names) {
    std::vector<std::string> words;
    for (const auto& named : names) words.emplace_back(named.name);
    Add(key, {{"enum", words}});
  }
  void Real(std::string_view key, double, const config::Interval&,
            std::string_view) {
    Add(key, {{"type", "number"}});
  }
  void Integer(std::string_view key, int64_t, int64_t, int64_t,
               std::string_view) {
    Add(key, {{"type", "integer"}});
  }
  void Flag(std::string_view key, bool) { Add(key, {{"type", "boolean"}}); }
  void Words(std::string_view key, auto&&, std::span<const std::string> words,
             std::string_view none = "") {
    Json schema = {{"type", "array"}, {"items", {{"enum", words}}}};
    if (!none.empty()) {
      schema["type"] = {"string", "array"};
      schema["description"] = config::WordsRule(words, none);
    }
    Add(key, schema);
  }
  void Add(std::string_view key, Json schema) {
    keys[std::string(key)] = std::move(schema);
  }
};

Json PolicySchema() {
  Policy policy;
  PolicySchemas schemas;
  Visit(schemas, policy);
  Json schema = {{"required", Json::array()}, {"properties", schemas.keys}};
  for (const auto& [key, value] : schemas.keys.items()) {
    schema["required"].push_back(key);
  }
  return schema;
}

/// Holds a document to what it should be, or makes it so.
void ExpectDocument(const std::string& name, const std::string& expected) {
  const std::string path = std::string(ISOLOSS_SOURCE_DIR "/docs/") + name;
  if (std::getenv("ISOLOSS_WRITE_DOCUMENTS") != nullptr) {
    std::ofstream(path) << expected;
  }
  EXPECT_TRUE(ReadTextFile(path, "") == expected)
      << path << " is not what policy.def says. " << kHowToWrite;
}

std::string Read(const std::string& name) {
  return ReadTextFile(std::string(ISOLOSS_SOURCE_DIR "/docs/") + name, "");
}

TEST(PolicyDocuments, EachKeyIsDescribed) {
  const std::vector<PolicyKey> keys = PolicyKeys();
  const Json schemas = PolicySchema()["properties"];

  ASSERT_EQ(keys.size(), schemas.size());
  for (const PolicyKey& key : keys) {
    SCOPED_TRACE(key.name);
    EXPECT_TRUE(schemas.contains(key.name));
    EXPECT_FALSE(key.range.empty());
    EXPECT_GT(key.meaning.size(), key.name.size());
    // Its default is a value that a file may give.
    EXPECT_EQ(FormatPolicy(ParsePolicy(
                  fmt::format("{} = {}", key.name, key.initial), "test")),
              FormatPolicy({}));
  }
}

TEST(PolicyDocuments, TheSchemaOfVerdictsHasEachKey) {
  Json schema = Json::parse(Read("verdict.schema.json"));

  schema["properties"]["policy"].update(PolicySchema());

  ExpectDocument("verdict.schema.json", schema.dump(1) + "\n");
}

}  // namespace
}  // namespace isoloss::gate::policy_documents_test
