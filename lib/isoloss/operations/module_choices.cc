// Decides which linear modules of a trainer a recipe quantises, and says why.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/operations/check.h"

namespace isoloss::operations {
namespace {

bool ModuleMatches(const std::string& pattern, const std::string& module) {
  return pattern.starts_with('=') ? module == pattern.substr(1)
                                  : precision::SiteMatches(pattern, module);
}

const std::string* MatchOf(const std::vector<std::string>& patterns,
                           const std::string& module) {
  const auto found = std::ranges::find_if(patterns, [&](const auto& pattern) {
    return ModuleMatches(pattern, module);
  });
  return found == patterns.end() ? nullptr : &*found;
}

bool IsOverridden(const precision::Recipe& recipe, const std::string& module) {
  return std::ranges::any_of(recipe.overrides, [&](const auto& change) {
    return MatchOf(change.sites, module) != nullptr;
  });
}

/// Returns whether the pattern stands in the name as whole words, which points
/// separate. A pattern with `*` says itself where words go on.
bool NamesWholeWords(std::string_view pattern, std::string_view module) {
  if (pattern.ends_with('?')) pattern.remove_suffix(1);
  if (pattern.starts_with('=') || pattern.find('*') != std::string_view::npos) {
    return true;
  }
  while (pattern.starts_with('.')) pattern.remove_prefix(1);
  while (pattern.ends_with('.')) pattern.remove_suffix(1);
  for (size_t at = module.find(pattern); at != std::string_view::npos;
       at = module.find(pattern, at + 1)) {
    const size_t end = at + pattern.size();
    if ((at == 0 || module[at - 1] == '.') &&
        (end == module.size() || module[end] == '.')) {
      return true;
    }
  }
  return false;
}

}  // namespace

ModuleChoices::ModuleChoices(const std::vector<OperationFile>& files,
                             const precision::Recipe& recipe,
                             const CheckOptions& options)
    : recipe_(recipe), options_(options) {
  std::map<std::string, bool> has_codes;
  for (const OperationFile& file : files) {
    for (const Operation& operation : file.operations) {
      if (!operation.is_linear()) continue;
      bool& codes = has_codes[operation.module];
      codes = codes || !operation.codes.empty();
    }
  }
  for (const auto& [module, codes] : has_codes) {
    choices_.push_back({.module = module, .reason = {}});
    patterns_match_ =
        patterns_match_ || MatchOf(recipe.include, module) != nullptr;
  }
  CheckPatterns("--include", options.include);
  CheckPatterns("--exclude", options.exclude);
  if (options.include.empty()) {
    for (const std::string& pattern : recipe.include) {
      RemarkOn("The recipe's pattern", pattern, /*is_option=*/false);
    }
  }
  if (options.exclude.empty()) {
    for (const std::string& pattern : recipe.exclude) {
      RemarkOn("The recipe's pattern", pattern, /*is_option=*/false);
    }
  }
  for (ModuleChoice& choice : choices_) {
    choice = Choose(choice.module, has_codes[choice.module]);
  }
}

const ModuleChoice& ModuleChoices::Of(const Operation& operation) const {
  return *std::ranges::lower_bound(choices_, operation.module, {},
                                   &ModuleChoice::module);
}

ModuleChoice ModuleChoices::Choose(const std::string& module,
                                   bool has_codes) const {
  ModuleChoice choice = ByPatterns(module);
  if (has_codes && !IsOverridden(recipe_, module)) {
    choice.quantized = recipe_.LinearPrecision::quantizes();
    choice.reason = "it holds codes";
    choice.precision = recipe_;
  }
  return choice;
}

ModuleChoice ModuleChoices::ByPatterns(const std::string& module) const {
  const auto taken = [&](const std::string& reason, bool is_named,
                         const precision::LinearPrecision& precision) {
    return ModuleChoice{module, precision.quantizes(), reason, is_named,
                        precision};
  };
  for (const precision::SiteOverride& change : recipe_.overrides) {
    const std::string* match = MatchOf(change.sites, module);
    if (match == nullptr) continue;
    return taken(fmt::format("overridden by `{}`", *match), true,
                 change.precision);
  }
  const bool is_given = !options_.include.empty();
  const std::string* include =
      MatchOf(is_given ? options_.include : recipe_.include, module);
  const std::string* exclude = MatchOf(
      options_.exclude.empty() ? recipe_.exclude : options_.exclude, module);
  if (exclude != nullptr) {
    return taken(fmt::format("excluded by `{}`", *exclude), true, {});
  }
  if (include != nullptr) {
    return taken(fmt::format("included by `{}`", *include), true, recipe_);
  }
  if (is_given || patterns_match_) return taken("not included", false, {});
  return taken("no pattern of the recipe names any module", false, recipe_);
}

void ModuleChoices::CheckPatterns(const char* option,
                                  const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const auto count = std::ranges::count_if(choices_, [&](const auto& choice) {
      return ModuleMatches(pattern, choice.module);
    });
    if (count == 0 && !pattern.ends_with('?')) {
      ThrowError(ErrorKind::kConfig,
                 "{}: the pattern `{}` matches none of the {} linear modules "
                 "of the files, but must match one{}. Correct the pattern.",
                 option, Printable(pattern), choices_.size(),
                 choices_.empty()
                     ? ""
                     : fmt::format(", such as {}",
                                   Printable(choices_.front().module)));
    }
    RemarkOn(option, pattern, /*is_option=*/true);
  }
}

void ModuleChoices::RemarkOn(const char* whose, const std::string& pattern,
                             bool is_option) {
  size_t whole = 0;
  std::vector<std::string> within;
  for (const ModuleChoice& choice : choices_) {
    if (!ModuleMatches(pattern, choice.module)) continue;
    if (NamesWholeWords(pattern, choice.module)) {
      ++whole;
    } else {
      within.push_back(Printable(choice.module));
    }
  }
  if (!within.empty() && whole > 0) {
    constexpr size_t kShown = 3;
    const size_t shown = std::min(kShown, within.size());
    remarks_.push_back(fmt::format(
        "{} `{}` names {} module{}, but matches inside words of {} more: {}{}. "
        "`=NAME` names one module.",
        whose, Printable(pattern), whole, whole == 1 ? "" : "s", within.size(),
        fmt::join(within.begin(),
                  within.begin() + static_cast<ptrdiff_t>(shown), ", "),
        within.size() > shown ? " and so on" : ""));
  } else if (is_option && whole + within.size() > 1) {
    remarks_.push_back(fmt::format(
        "{} `{}` matches {} modules, since patterns match inside names. "
        "`=NAME` names one module.",
        whose, Printable(pattern), whole + within.size()));
  }
}

}  // namespace isoloss::operations
