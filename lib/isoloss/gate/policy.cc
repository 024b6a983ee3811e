#include "isoloss/gate/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <variant>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/text_file.h"
#include "isoloss/base/toml_text.h"
#include "isoloss/gate/level.h"

namespace isoloss::gate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One key of gate.toml.
struct PolicyKey {
  std::string_view name;
  std::variant<compare::Question Policy::*, double Policy::*, int64_t Policy::*,
               bool Policy::*, std::vector<std::string> Policy::*>
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
    {"gross_factor", &Policy::gross_factor, 1, 1000, false, "x"},
    {"levels", &Policy::levels, 0, 0, false, "names of levels"},
    {"probe_cases", &Policy::probe_cases, 0, 0, false, "names of cases"},
    {"parted_steps", &Policy::parted_steps, 1, kInfinity, false, "steps"},
    {"flip_factor", &Policy::flip_factor, 1, 1000, false, "x"},
    {"flip_alpha", &Policy::flip_alpha, 0, 0.5, true, "probability"},
    {"noise_ratio_limit", &Policy::noise_ratio_limit, 1, 1e6, false, "x"},
    {"early_steps", &Policy::early_steps, 1, 10000, false, "steps"},
    {"resolution_ulps", &Policy::resolution_ulps, 0, 1e6, true,
     "2^-24 of the value"},
    {"null_coverage", &Policy::null_coverage, 0.5, 1, true, "probability"},
    {"null_confidence", &Policy::null_confidence, 0.5, 1, true, "probability"},
    {"null_headroom", &Policy::null_headroom, 1, 1000, false, "x"},
    {"early_headroom", &Policy::early_headroom, 1, 1000, false, "x"},
    {"null_limit_ceiling", &Policy::null_limit_ceiling, 1, 1e9, false,
     "standard deviations"},
    {"min_members", &Policy::min_members, 8, kInfinity, false, "good runs"},
    {"sequential_batch", &Policy::sequential_batch, 2, kInfinity, false,
     "steps"},
    {"sequential_alpha", &Policy::sequential_alpha, 0, 0.5, true,
     "probability"},
    {"cusum_limit", &Policy::cusum_limit, 0, 1e6, true, "standard deviations"},
};

/// Levels that may be asked for: a level that decides nothing always runs.
std::vector<std::string> ChoosableLevels() {
  std::vector<std::string> names;
  for (const Level* level : Ladder()) {
    if (level->decides != Decides::kNeither) names.emplace_back(level->name);
  }
  return names;
}

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
  /// A list without repetitions; of levels also "auto".
  void operator()(std::vector<std::string> Policy::*field) const {
    const bool levels = field == &Policy::levels;
    const std::vector<std::string> choices =
        levels ? ChoosableLevels() : Policy{}.probe_cases;
    const std::string rule =
        fmt::format("must be {}a list of some of {}, each once",
                    levels ? "\"auto\" or " : "", fmt::join(choices, ", "));
    (policy_.*field).clear();
    if (levels && node_.value_exact<std::string>() == "auto") return;
    const toml::array* names = node_.as_array();
    if (names == nullptr || names->empty()) Reject(rule);
    for (const toml::node& entry : *names) {
      const auto name = entry.value_exact<std::string>();
      if (!name || std::ranges::count(choices, *name) == 0 ||
          std::ranges::count(policy_.*field, *name) != 0) {
        Reject(rule);
      }
      (policy_.*field).push_back(*name);
    }
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
      Reject(fmt::format("must be at least {}", key_.least));
    }
    Reject(fmt::format("must lie between {} and {}{}", key_.least, key_.most,
                       key_.open ? ", both excluded" : ""));
  }
  [[noreturn]] void Reject(const std::string& rule) const {
    std::ostringstream given;
    node_.visit([&given](const auto& node) { given << node; });
    FailAt(file_, node_.source(),
           fmt::format("`{}` is {}, but {}. Unit: {}.", key_.name, given.str(),
                       rule, key_.unit));
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
  const toml::table table = ParseToml(text, name);
  for (const auto& [given, node] : table) {
    const PolicyKey& key = FindKey(given, name);
    std::visit(Assign(key, node, name, policy), key.field);
  }
  return policy;
}

std::vector<std::pair<std::string_view, PolicyValue>> PolicyValues(
    const Policy& policy) {
  std::vector<std::pair<std::string_view, PolicyValue>> values;
  for (const PolicyKey& key : kKeys) {
    PolicyValue value = std::visit(
        [&policy](auto field) -> PolicyValue {
          using Field = decltype(field);
          if constexpr (std::is_same_v<Field, compare::Question Policy::*>) {
            return std::string(QuestionName(policy.*field));
          } else if constexpr (std::is_same_v<
                                   Field, std::vector<std::string> Policy::*>) {
            if ((policy.*field).empty()) return std::string("auto");
            return policy.*field;
          } else {
            return policy.*field;
          }
        },
        key.field);
    values.emplace_back(key.name, std::move(value));
  }
  return values;
}

std::string FormatPolicy(const Policy& policy) {
  std::string text;
  for (const auto& [name, value] : PolicyValues(policy)) {
    const std::string shown = std::visit(
        [](const auto& given) {
          using Given = std::decay_t<decltype(given)>;
          if constexpr (std::is_same_v<Given, std::string>) {
            return fmt::format("\"{}\"", given);
          } else if constexpr (std::is_same_v<Given,
                                              std::vector<std::string>>) {
            return fmt::format("[\"{}\"]", fmt::join(given, "\", \""));
          } else {
            return fmt::format("{}", given);
          }
        },
        value);
    text += fmt::format("{} = {}\n", name, shown);
  }
  return text;
}

std::string PolicyDigest(const Policy& policy) {
  return DigestToHex(DigestOf(FormatPolicy(policy)));
}

}  // namespace isoloss::gate
