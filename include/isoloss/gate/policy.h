// Defines the policy: the limits that decide a verdict.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/named.h"
#include "isoloss/compare/integrity.h"
#include "isoloss/config/values.h"

namespace isoloss::gate {

inline constexpr Named<compare::Question> kQuestions[] = {
    {"precision", compare::Question::kPrecision},
    {"regression", compare::Question::kRegression}};
/// Returns the names of the levels that decide something. Only these may be
/// asked for.
const std::vector<std::string>& ListableLevels();
/// The value that stands for "auto" is an empty list of levels.
inline const std::vector<std::string> kAuto = {};
/// A probe may hold these cases; `exchange` only if the model has routers.
inline const std::vector<std::string> kProbeCases = {
    "plain",    "hot_row", "zero_block", "scale_edge", "router_ties",
    "exchange", "tails",   "branches",   "evaluation"};

/// Defines the type of a key's value by the kind of the key.
struct PolicyTypes {
  using Choice = compare::Question;
  using Real = double;
  using Integer = int64_t;
  using Flag = bool;
  using Words = std::vector<std::string>;
};

/// Each field is a key of the same name in gate.toml; policy.def has its
/// default, and PolicyKeys() says what it means.
struct Policy {
#define ISOLOSS_POLICY_KEY(kind, name, initial, ...) \
  PolicyTypes::kind name = initial;
#include "isoloss/gate/policy.def"
#undef ISOLOSS_POLICY_KEY

  /// Says who chose the margin, if it is not the default of margin_percent:
  /// "--margin", a file's name. It is no key, and no part of the digest.
  std::string margin_source = {};

  /// So many candidates of one baseline, none of which is shown to be as good
  /// yet, share alpha (Holm 1979). It is no key either.
  int64_t sharing = 1;

  /// Returns alpha's share for a single candidate.
  double Alpha() const { return alpha / static_cast<double>(sharing); }
  /// L5 decides on the scale of extra tokens, not on that of loss.
  bool InTokens() const { return margin_tokens_percent > 0; }
  /// Returns the margin on the scale that L5 decides on, in percent of the
  /// baseline's tokens or loss.
  double Margin() const {
    return InTokens() ? margin_tokens_percent : margin_percent;
  }
};

/// The margin of a verdict on precision of isoloss' own runs, in percent of the
/// loss, if nobody chose another. It is the difference that separates known bad
/// recipes from BF16 in models of a few million parameters or less.
inline constexpr double kOwnMarginPercent = 0.1;

/// Describes all keys to a config::Reader, a config::Writer, or a class with
/// the same methods.
template <typename Fields>
void Visit(Fields& fields, Policy& policy) {
#define ISOLOSS_POLICY_KEY(kind, name, initial, meaning, ...) \
  fields.kind(#name, policy.name __VA_OPT__(, ) __VA_ARGS__);
#include "isoloss/gate/policy.def"
#undef ISOLOSS_POLICY_KEY
}

/// Describes a key.
struct PolicyKey {
  std::string name;
  std::string initial;  ///< its default, as TOML
  std::string range;    ///< "(0, 100)", "true, false", ...
  std::string unit;     ///< "" if it has none
  std::string meaning;
};

/// Returns all keys, in their order.
std::vector<PolicyKey> PolicyKeys();

/// Returns "precision" or "regression".
std::string_view QuestionName(compare::Question question);

/// Reads a policy; keys that are absent keep their defaults.
/// Errors   IoError if the file can't be read; ConfigError as config::Reader's.
Policy ReadPolicy(const std::filesystem::path& path);

/// Returns the policy with another `margin_percent`, which `source` chose.
/// Errors   ConfigError if it is not within the key's range, or if the policy
///          decides by a margin in tokens.
Policy WithMargin(Policy policy, double percent, const std::string& source);

/// Reads text as ReadPolicy reads a file; `name` stands for the file in
/// messages.
Policy ParsePolicy(std::string_view text, std::string_view name);

/// Returns the digest of FormatPolicy, so that equal policies have equal
/// digests.
std::string PolicyDigest(const Policy& policy);

/// Writes "margin_percent = 0.25" and so on, one key per line, as ParsePolicy
/// reads it. Whole numbers stand without ".0", as in the digests of power
/// records.
std::string FormatPolicy(const Policy& policy);

}  // namespace isoloss::gate
