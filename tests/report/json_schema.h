// The part of JSON Schema (draft 2020-12) that docs/verdict.schema.json uses.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace isoloss::test_support {

/// Where `value` is not what `schema` asks for; empty if it is valid. A keyword
/// that is not known here is a finding as well: nothing goes unchecked.
class SchemaCheck {
 public:
  using Json = nlohmann::json;

  std::vector<std::string> Findings(const Json& schema, const Json& value) {
    return Findings(schema, schema, value);
  }

  /// By `part`, one of the definitions of `schema`.
  std::vector<std::string> Findings(const Json& schema, const Json& part,
                                    const Json& value) {
    findings_.clear();
    root_ = &schema;
    Check(part, value, "$");
    return findings_;
  }

 private:
  static bool HasType(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  void Report(const std::string& where, const std::string& what) {
    findings_.push_back(fmt::format("{}: {}", where, what));
  }

  void Check(const Json& schema, const Json& value, const std::string& where) {
    for (const auto& [keyword, rule] : schema.items()) {
      if (keyword == "type") {
        const Json types = rule.is_array() ? rule : Json::array({rule});
        if (std::none_of(types.begin(), types.end(), [&](const Json& type) {
              return HasType(type.get<std::string>(), value);
            })) {
          Report(where, fmt::format("{} is not {}", value.dump(), rule.dump()));
        }
      } else if (keyword == "const" || keyword == "enum") {
        const Json allowed = keyword == "enum" ? rule : Json::array({rule});
        if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
          Report(where,
                 fmt::format("{} is not in {}", value.dump(), allowed.dump()));
        }
      } else if (keyword == "required") {
        for (const Json& key : rule) {
          if (value.is_object() && !value.contains(key.get<std::string>())) {
            Report(where, fmt::format("{} is missing", key.dump()));
          }
        }
      } else if (keyword == "items") {
        for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
          Check(rule, value[i], fmt::format("{}[{}]", where, i));
        }
      } else if (keyword == "properties") {
        if (value.is_object()) CheckMembers(schema, value, where);
      } else if (keyword == "$ref" && rule == "#") {
        Check(*root_, value, where);
      } else if (!IsNote(keyword)) {
        Report(where, "the schema uses " + keyword);
      }
    }
  }

  void CheckMembers(const Json& schema, const Json& value,
                    const std::string& where) {
    const Json patterns = schema.value("patternProperties", Json::object());
    for (const auto& [key, member] : value.items()) {
      const std::string place = where + "." + key;
      const Json* rule = nullptr;
      if (schema["properties"].contains(key)) {
        rule = &schema["properties"][key];
      }
      for (const auto& [pattern, other] : patterns.items()) {
        if (std::regex_search(key, std::regex(pattern))) {
          Check(other, member, place);
          if (rule == nullptr) rule = &kAnything;
        }
      }
      if (rule == nullptr) {
        Report(place, "is no key of the schema");
      } else {
        Check(*rule, member, place);
      }
    }
  }

  static bool IsNote(const std::string& keyword) {
    const std::string notes[] = {"$schema",
                                 "$defs",
                                 "title",
                                 "description",
                                 "patternProperties",
                                 "additionalProperties"};
    return std::count(std::begin(notes), std::end(notes), keyword) != 0;
  }

  inline static const Json kAnything = Json::object();
  const Json* root_ = nullptr;
  std::vector<std::string> findings_;
};

}  // namespace isoloss::test_support
