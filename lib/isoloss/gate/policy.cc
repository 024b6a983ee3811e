#include "isoloss/gate/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <span>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/config/reader.h"
#include "isoloss/config/writer.h"
#include "isoloss/gate/level.h"
#include "isoloss/runlog/recording.h"

namespace isoloss::gate {
namespace {

/// Visits a policy (Visit) and describes each key but for its meaning.
class KeyDescriber {
 public:
  explicit KeyDescriber(const std::map<std::string, std::string>& defaults)
      : defaults_(defaults) {}

  void Choice(std::string_view key, auto&&, const auto& names) {
    std::vector<std::string> words;
    for (const auto& named : names) words.push_back(config::Quoted(named.name));
    Add(key, fmt::format("{}", fmt::join(words, ", ")), "");
  }
  void Real(std::string_view key, double, const config::Interval& range,
            std::string_view unit) {
    Add(key, range.ToString(), unit);
  }
  void Integer(std::string_view key, int64_t, int64_t low, int64_t high,
               std::string_view unit) {
    Add(key, config::IntegersText(low, high), unit);
  }
  void Flag(std::string_view key, bool) { Add(key, "true, false", ""); }
  void Words(std::string_view key, auto&&, std::span<const std::string> words,
             std::string_view none = "") {
    Add(key, config::WordsRule(words, none), "");
  }

  std::vector<PolicyKey> Take() { return std::move(keys_); }

 private:
  void Add(std::string_view key, std::string range, std::string_view unit) {
    const std::string name(key);
    keys_.push_back(
        {name, defaults_.at(name), std::move(range), std::string(unit), ""});
  }

  const std::map<std::string, std::string>& defaults_;
  std::vector<PolicyKey> keys_;
};

}  // namespace

std::vector<PolicyKey> PolicyKeys() {
  const std::map<std::string_view, std::string_view> meanings = {
#define ISOLOSS_POLICY_KEY(kind, name, initial, meaning, ...) {#name, meaning},
#include "isoloss/gate/policy.def"
#undef ISOLOSS_POLICY_KEY
  };
  Policy policy;
  const auto defaults = runlog::KeysOf(FormatPolicy(policy));
  KeyDescriber describer(defaults);
  Visit(describer, policy);
  std::vector<PolicyKey> keys = describer.Take();
  for (PolicyKey& key : keys) key.meaning = meanings.at(key.name);
  return keys;
}

const std::vector<std::string>& ListableLevels() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Level* level : Ladder()) {
      if (level->decides != Decides::kNeither) names.emplace_back(level->name);
    }
    return names;
  }();
  return kNames;
}

std::string_view QuestionName(compare::Question question) {
  return question == compare::Question::kPrecision ? "precision" : "regression";
}

Policy ReadPolicy(const std::filesystem::path& path) {
  const std::string text =
      ReadTextFile(path, "Give the path of a gate policy.");
  return ParsePolicy(text, path.string());
}

Policy WithMargin(Policy policy, double percent, const std::string& source) {
  constexpr double kMost = 100;  // as of the key
  if (!(percent > 0 && percent < kMost)) {
    ThrowError(ErrorKind::kConfig,
               "{}: the margin is {:g}, but it must be above 0 and below {:g} "
               "% of the baseline's loss. Give for example 0.5.",
               source, percent, kMost);
  }
  if (policy.InTokens()) {
    ThrowError(ErrorKind::kConfig,
               "{}: a margin of {:g} % of the loss is given, but the policy "
               "decides by tokens (margin_tokens_percent = {:g}). Leave out "
               "one of them.",
               source, percent, policy.margin_tokens_percent);
  }
  policy.margin_percent = percent;
  policy.margin_source = source;
  return policy;
}

Policy ParsePolicy(std::string_view text, std::string_view name) {
  const config::Document document(text, std::string(name));
  auto policy = config::ReadAll<Policy>(document);
  const config::Reader keys(document);
  if (keys.Has("margin_percent") || keys.Has("margin_tokens_percent")) {
    policy.margin_source = name;
  }
  return policy;
}

std::string FormatPolicy(const Policy& policy) {
  constexpr std::string_view kWhole = ".0\n";
  std::string text = config::TextOf(policy);
  for (size_t place = text.find(kWhole); place != std::string::npos;
       place = text.find(kWhole, place)) {
    text.erase(place, kWhole.size() - 1);
  }
  return text;
}

std::string PolicyDigest(const Policy& policy) {
  return DigestToHex(DigestOf(FormatPolicy(policy)));
}

}  // namespace isoloss::gate
