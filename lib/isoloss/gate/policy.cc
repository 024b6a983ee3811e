#include "isoloss/gate/policy.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <limits>
#include <variant>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/text_file.h"

namespace isoloss::gate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One key of gate.toml.
struct PolicyKey {
  std::string_view name;
  std::variant<compare::Question Policy::*, double Policy::*, int64_t Policy::*,
               bool Policy::*>
      field;
  /// Numbers must lie in [least, most]; an open end is excluded.
  double least;
  double most;
  bool open;
  std::string_view unit;
};

constexpr PolicyKey kKeys[] = {
    {"question", &Policy::question, 0, 0, false, "name"},
    {"margin_percent", &Policy::margin_percent, 0, 100, true,
     "% of the baseline's loss"},
    {"alpha", &Policy::alpha, 0, 0.5, true, "probability"},
    {"power", &Policy::power, 0.5, 1, true, "probability"},
    {"window_share", &Policy::window_share, 0, 1, true, "share of all steps"},
    {"min_seeds", &Policy::min_seeds, 2, kInfinity, false, "seed pairs"},
    {"one_sided", &Policy::one_sided, 0, 0, false, "true or false"},
};

[[noreturn]] void FailAt(std::string_view file, const toml::source_region& at,
                         const std::string& what) {
  ThrowError(ErrorKind::kConfig, "{}:{}: {}", file, at.begin.line, what);
}

std::vector<std::string> KeyNames() {
  std::vector<std::string> names;
  for (const PolicyKey& key : kKeys) names.emplace_back(key.name);
  return names;
}

const PolicyKey& FindKey(const toml::key& given, std::string_view file) {
  for (const PolicyKey& key : kKeys) {
    if (key.name == given.str()) return key;
  }
  const std::vector<std::string> known = KeyNames();
  FailAt(file, given.source(),
         fmt::format("unknown key `{}`. Known keys: {}.{}", given.str(),
                     fmt::join(known, ", "), DidYouMean(given.str(), known)));
}

/// Puts one value where its key says, or says why not.
class Assign {
 public:
  Assign(const PolicyKey& key, const toml::node& node, std::string_view file,
         Policy& policy)
      : key_(key), node_(node), file_(file), policy_(policy) {}

  void operator()(compare::Question Policy::*field) const {
    const auto text = node_.value_exact<std::string>();
    for (const auto question :
         {compare::Question::kPrecision, compare::Question::kRegression}) {
      if (text == std::string(QuestionName(question))) {
        policy_.*field = question;
        return;
      }
    }
    Reject("must be \"precision\" or \"regression\"");
  }
  void operator()(double Policy::*field) const {
    // A whole number is a fine value for a real key.
    if (!node_.is_number()) Reject("must be a number");
    const auto whole = node_.value_exact<int64_t>();
    policy_.*field = InRange(whole ? static_cast<double>(*whole)
                                   : *node_.value_exact<double>());
  }
  void operator()(int64_t Policy::*field) const {
    if (!node_.is_integer()) Reject("must be a whole number");
    const int64_t value = *node_.value_exact<int64_t>();
    InRange(static_cast<double>(value));
    policy_.*field = value;
  }
  void operator()(bool Policy::*field) const {
    if (!node_.is_boolean()) Reject("must be true or false");
    policy_.*field = *node_.value_exact<bool>();
  }

 private:
  double InRange(double value) const {
    const bool inside = key_.open ? key_.least < value && value < key_.most
                                  : key_.least <= value && value <= key_.most;
    if (inside) return value;
    if (key_.most == kInfinity) {
      Reject(fmt::format("is {}, but must be at least {}", value, key_.least));
    }
    Reject(fmt::format("is {}, but must lie between {} and {}{}", value,
                       key_.least, key_.most,
                       key_.open ? ", both excluded" : ""));
  }
  [[noreturn]] void Reject(const std::string& rule) const {
    FailAt(file_, node_.source(),
           fmt::format("`{}` {}. Unit: {}.", key_.name, rule, key_.unit));
  }

  const PolicyKey& key_;
  const toml::node& node_;
  std::string_view file_;
  Policy& policy_;
};

}  // namespace

std::string_view QuestionName(compare::Question question) {
  return question == compare::Question::kPrecision ? "precision" : "regression";
}

Policy ReadPolicy(const std::filesystem::path& path) {
  const std::string text =
      ReadTextFile(path, "Give the path of a gate policy.");
  return ParsePolicy(text, path.string());
}

Policy ParsePolicy(std::string_view text, std::string_view name) {
  Policy policy;
  try {
    const toml::table table = toml::parse(text, name);
    for (const auto& [given, node] : table) {
      const PolicyKey& key = FindKey(given, name);
      std::visit(Assign(key, node, name, policy), key.field);
    }
  } catch (const toml::parse_error& error) {
    FailAt(name, error.source(), std::string(error.description()) + ".");
  }
  return policy;
}

std::string FormatPolicy(const Policy& policy) {
  std::string text;
  for (const PolicyKey& key : kKeys) {
    const std::string value = std::visit(
        [&](auto field) {
          if constexpr (std::is_same_v<decltype(field),
                                       compare::Question Policy::*>) {
            return fmt::format("\"{}\"", QuestionName(policy.*field));
          } else {
            return fmt::format("{}", policy.*field);
          }
        },
        key.field);
    text += fmt::format("{} = {}\n", key.name, value);
  }
  return text;
}

}  // namespace isoloss::gate
