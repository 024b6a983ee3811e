// The limits a verdict is given by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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
  double gross_factor = 4;
  /// Levels that decide, "L1" to "L5" (L0 always does). Empty: "auto".
  std::vector<std::string> levels = {};
  /// Cases that a probe must hold; `exchange` only if the model has routers.
  std::vector<std::string> probe_cases = {
      "plain",    "hot_row", "zero_block", "scale_edge", "router_ties",
      "exchange", "tails",   "branches",   "evaluation"};
  int64_t parted_steps = 256;
  double flip_factor = 3;
  double flip_alpha = 0.001;
  double noise_ratio_limit = 4;
  int64_t early_steps = 20;
  double resolution_ulps = 256;
  double null_coverage = 0.9999;
  double null_confidence = 0.95;
  double null_headroom = 3;
  double early_headroom = 6;
  double null_limit_ceiling = 300;
  int64_t min_members = 40;
  int64_t sequential_batch = 20;
  double sequential_alpha = 0.01;
  double cusum_limit = 8;
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

/// Digest of FormatPolicy: equal policies, equal digest.
std::string PolicyDigest(const Policy& policy);

/// "margin_percent = 0.25" and so on, one key per line: what ParsePolicy reads.
std::string FormatPolicy(const Policy& policy);

/// Each key with its value: a string, a list of strings, a number or a truth.
using PolicyValue =
    std::variant<std::string, std::vector<std::string>, double, int64_t, bool>;
std::vector<std::pair<std::string_view, PolicyValue>> PolicyValues(
    const Policy& policy);

}  // namespace isoloss::gate
