// The documents of the policy, made of its keys:
// ISOLOSS_WRITE_DOCUMENTS=1 build/release/tests/gate/policy_documents_test
// writes them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "isoloss/base/text_file.h"
#include "isoloss/gate/policy.h"
#include "isoloss/runlog/recording.h"

namespace isoloss::gate {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHowToWrite =
    "Run it with ISOLOSS_WRITE_DOCUMENTS=1 in the environment, then look at "
    "the difference.";

/// What the documents say of each key besides its name and meaning.
struct Described {
  struct Key {
    std::string name, range, unit;
    Json schema;
  };
  std::vector<Key> keys;

  void Add(std::string_view key, std::string range, std::string_view unit,
           Json schema) {
    keys.push_back({std::string(key), std::move(range), std::string(unit),
                    std::move(schema)});
  }
  void Choice(std::string_view key, auto&&, const auto& names) {
    std::vector<std::string> words;
    for (const auto& named : names) words.emplace_back(named.name);
    Add(key, fmt::format("`\"{}\"`", fmt::join(words, "\"`, `\"")), "name",
        {{"enum", words}});
  }
  void Real(std::string_view key, double, const config::Interval& range,
            std::string_view unit) {
    Add(key, range.ToString(), unit, {{"type", "number"}});
  }
  void Integer(std::string_view key, int64_t, int64_t low, int64_t high,
               std::string_view unit) {
    Add(key, config::IntegersText(low, high), unit, {{"type", "integer"}});
  }
  void Flag(std::string_view key, bool) {
    Add(key, "true, false", "", {{"type", "boolean"}});
  }
  void Words(std::string_view key, auto&&, std::span<const std::string> words,
             std::string_view none = "") {
    Json schema = {{"type", "array"}, {"items", {{"enum", words}}}};
    const std::string rule = config::WordsRule(words, none);
    if (!none.empty()) {
      schema["type"] = {"string", "array"};
      schema["description"] = rule;
    }
    Add(key, rule, "names", schema);
  }
};

std::vector<Described::Key> DescribedKeys() {
  Policy policy;
  Described described;
  Visit(described, policy);
  return described.keys;
}

/// The lines of the table below its heading.
std::string Rows() {
  const std::map<std::string, std::string> meanings = {
#define ISOLOSS_POLICY_KEY(kind, name, initial, meaning, ...) {#name, meaning},
#include "isoloss/gate/policy.def"
#undef ISOLOSS_POLICY_KEY
  };
  auto defaults = runlog::KeysOf(FormatPolicy({}));
  std::string rows;
  for (const auto& key : DescribedKeys()) {
    std::string initial = defaults[key.name];
    if (initial.front() == '"') initial = "`" + initial + "`";
    rows += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, initial,
                        key.range, key.unit, meanings.at(key.name));
  }
  return rows;
}

Json PolicySchema() {
  Json schema = {{"required", Json::array()}, {"properties", Json::object()}};
  for (const auto& key : DescribedKeys()) {
    schema["required"].push_back(key.name);
    schema["properties"][key.name] = key.schema;
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

TEST(PolicyDocuments, TheTableHasARowForEachKey) {
  constexpr std::string_view kHeading =
      "| key | default | range | unit | meaning; source; reason for the "
      "default |\n|---|---|---|---|---|\n";
  std::string text = Read("gate.md");
  const size_t begin = text.find(kHeading);
  ASSERT_NE(begin, std::string::npos);
  const size_t first = begin + kHeading.size();

  text.replace(first, text.find("\n\n", first) + 1 - first, Rows());

  ExpectDocument("gate.md", text);
}

TEST(PolicyDocuments, TheSchemaOfVerdictsHasEachKey) {
  Json schema = Json::parse(Read("verdict.schema.json"));

  schema["properties"]["policy"].update(PolicySchema());

  ExpectDocument("verdict.schema.json", schema.dump(1) + "\n");
}

}  // namespace
}  // namespace isoloss::gate
