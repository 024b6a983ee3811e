#include "isoloss/report/policy_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "isoloss/document/text_layout.h"
#include "isoloss/gate/policy.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::TextStyle;
using document::Wrap;

}  // namespace

std::string PolicyText(const TextStyle& style) {
  const auto paragraph = [&](size_t indent, const std::string& text) {
    return fmt::format("{:{}}{}\n", "", indent,
                       Wrap(text, indent, indent, style));
  };
  std::string text;
  for (const auto& key : gate::PolicyKeys()) {
    std::string line = fmt::format("{} = {}", key.name, key.initial);
    if (!key.unit.empty()) line += " # " + key.unit;
    text += paragraph(0, line);
    text += paragraph(4, key.meaning);
    text += paragraph(4, "values: " + key.range);
  }
  return text;
}

Json PolicyJson() {
  Json keys = Json::array();
  for (const auto& key : gate::PolicyKeys()) {
    keys.push_back({{"name", key.name},
                    {"default", key.initial},
                    {"unit", key.unit},
                    {"values", key.range},
                    {"meaning", key.meaning}});
  }
  return {{"keys", std::move(keys)}};
}

}  // namespace isoloss::report
