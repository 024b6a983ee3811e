// Decides which linear modules of a trainer a recipe quantises, and says why.
#include <fmt/format.h>

#include <algorithm>
#include <map>

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
  const auto taken = [&](const std::string& reason,
                         const precision::LinearPrecision& precision) {
    return ModuleChoice{module, precision.quantizes(), reason, precision};
  };
  for (const precision::SiteOverride& change : recipe_.overrides) {
    const std::string* match = MatchOf(change.sites, module);
    if (match == nullptr) continue;
    return taken(fmt::format("overridden by `{}`", *match), change.precision);
  }
  if (has_codes) return taken("it holds codes", recipe_);
  const bool is_given = !options_.include.empty();
  const std::string* include =
      MatchOf(is_given ? options_.include : recipe_.include, module);
  const std::string* exclude = MatchOf(
      options_.exclude.empty() ? recipe_.exclude : options_.exclude, module);
  if (exclude != nullptr) {
    return taken(fmt::format("excluded by `{}`", *exclude), {});
  }
  if (include != nullptr) {
    return taken(fmt::format("included by `{}`", *include), recipe_);
  }
  if (is_given || patterns_match_) return taken("not included", {});
  return taken("no pattern of the recipe names any module", recipe_);
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
    if (count > 1) {
      remarks_.push_back(fmt::format(
          "{} `{}` matches {} modules, since patterns match inside names. "
          "`=NAME` names one module.",
          option, Printable(pattern), count));
    }
  }
}

}  // namespace isoloss::operations
