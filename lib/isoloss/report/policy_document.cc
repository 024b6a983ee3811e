#include "isoloss/report/policy_document.h"

#include <fmt/format.h>

#include <string>

#include "isoloss/gate/policy.h"

namespace isoloss::report {

document::Document PolicyKeysDocument() {
  document::Document document;
  document.PutEach("keys", gate::PolicyKeys(), [](const auto& key) {
    document::Document of;
    of.Put("name", key.name);
    of.Put("default", key.initial);
    of.Put("unit", key.unit);
    of.Put("values", key.range);
    of.Put("meaning", key.meaning);
    std::string line = fmt::format("{} = {}", key.name, key.initial);
    if (!key.unit.empty()) line += " # " + key.unit;
    of.Add(document::Line{.text = line, .indent = 0, .hang = 0});
    of.Add(document::Line{.text = key.meaning, .indent = 4, .hang = 4});
    of.Add(
        document::Line{.text = "values: " + key.range, .indent = 4, .hang = 4});
    return of;
  });
  return document;
}

}  // namespace isoloss::report
