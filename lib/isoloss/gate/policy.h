// The limits a verdict is given by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "isoloss/compare/integrity.h"

namespace isoloss::gate {

/// Each field is a key of the same name in gate.toml; docs/gate.md says what
/// each means, where it comes from and why its default is what it is.
struct Policy {
  compare::Question question = compare::Question::kPrecision;
  double margin_percent = 0.25;
  double alpha = 0.05;
  double power = 0.8;
  double window_share = 0.2;
  int64_t min_seeds = 2;
  bool one_sided = false;
};

/// "precision" or "regression".
std::string_view QuestionName(compare::Question question);

/// Reads a policy; keys that are absent keep their defaults.
/// Errors   IoError if the file can't be read; ConfigError naming file, line
///          and rule for malformed TOML, an unknown key (with the nearest known
///          one), a wrong type or a value out of range.
Policy ReadPolicy(const std::filesystem::path& path);

/// As ReadPolicy, from text; `name` stands for the file in messages.
Policy ParsePolicy(std::string_view text, std::string_view name);

/// "margin_percent = 0.25" and so on, one key per line: what ParsePolicy reads.
std::string FormatPolicy(const Policy& policy);

}  // namespace isoloss::gate
