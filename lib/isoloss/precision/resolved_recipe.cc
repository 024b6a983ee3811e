#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {
namespace {

bool MayMatchNothing(std::string_view pattern) {
  return pattern.ends_with('?');
}

/// The pattern without its mark.
std::string_view Text(std::string_view pattern) {
  if (MayMatchNothing(pattern)) pattern.remove_suffix(1);
  return pattern;
}

ResolvedSite Resolve(const Recipe& recipe, const std::string& site) {
  if (!recipe.quantizes()) return {site, false, "the recipe quantises nothing"};
  const std::string* include = FirstMatch(recipe.include, site);
  const std::string* exclude = FirstMatch(recipe.exclude, site);
  if (include == nullptr) return {site, false, "not included"};
  if (exclude != nullptr) {
    return {site, false, fmt::format("excluded by `{}`", Text(*exclude))};
  }
  return {site, true, fmt::format("included by `{}`", Text(*include))};
}

/// The dot-separated parts of all names: what patterns are usually made of.
std::vector<std::string> NameParts(std::span<const ResolvedSite> sites) {
  std::vector<std::string> parts;
  for (const ResolvedSite& resolved : sites) {
    std::string_view rest = resolved.site;
    while (!rest.empty()) {
      const size_t length = std::min(rest.find('.'), rest.size());
      parts.emplace_back(rest.substr(0, length));
      rest.remove_prefix(std::min(length + 1, rest.size()));
    }
  }
  return parts;
}

/// Throws if `pattern` matches none of `sites`.
void RequireMatch(const Recipe& recipe, std::string_view list,
                  const std::string& pattern,
                  std::span<const ResolvedSite> sites) {
  if (Text(pattern).empty()) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: {} has the pattern `{}`, but a pattern must contain "
               "text. Use `*` to match every site.",
               recipe.name, list, pattern);
  }
  if (MayMatchNothing(pattern)) return;
  if (std::none_of(sites.begin(), sites.end(), [&](const ResolvedSite& s) {
        return SiteMatches(pattern, s.site);
      })) {
    ThrowError(
        ErrorKind::kConfig,
        "recipe {}: the {} pattern `{}` matches none of the model's {} "
        "GEMM sites, but it must match one.{} End it in `?` if the model "
        "may lack such a site.",
        recipe.name, list, pattern, sites.size(),
        DidYouMean(pattern, NameParts(sites)));
  }
}

/// Throws if every site that `pattern` includes is excluded again.
void RequireSelection(const Recipe& recipe, const std::string& pattern,
                      std::span<const ResolvedSite> sites) {
  if (MayMatchNothing(pattern)) return;
  const ResolvedSite* excluded = nullptr;
  for (const ResolvedSite& resolved : sites) {
    if (!SiteMatches(pattern, resolved.site)) continue;
    if (resolved.quantized) return;
    excluded = &resolved;
  }
  ISOLOSS_ASSERT(excluded != nullptr);
  ThrowError(ErrorKind::kConfig,
             "recipe {}: the include pattern `{}` must select a GEMM site, but "
             "all it matches are excluded again ({}: {}). Drop one of the two "
             "patterns.",
             recipe.name, pattern, excluded->site, excluded->reason);
}

void Validate(const Recipe& recipe, std::span<const ResolvedSite> sites) {
  if (!recipe.quantizes()) {
    if (recipe.include.empty() && recipe.exclude.empty()) return;
    ThrowError(ErrorKind::kConfig,
               "recipe {}: {} include and {} exclude patterns were given, but "
               "the recipe quantises nothing. Drop them or choose another "
               "recipe.",
               recipe.name, recipe.include.size(), recipe.exclude.size());
  }
  for (const std::string& pattern : recipe.include) {
    RequireMatch(recipe, "include", pattern, sites);
    RequireSelection(recipe, pattern, sites);
  }
  for (const std::string& pattern : recipe.exclude) {
    RequireMatch(recipe, "exclude", pattern, sites);
  }
  if (std::none_of(sites.begin(), sites.end(),
                   [](const ResolvedSite& s) { return s.quantized; })) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: its {} include patterns select none of the model's "
               "{} GEMM sites, but a recipe that quantises must select one. "
               "Give an include pattern that matches.",
               recipe.name, recipe.include.size(), sites.size());
  }
}

std::string DescribeOperand(const std::optional<formats::Quantization>& operand,
                            kernels::Rounding activation) {
  if (operand) return OperandName(operand);
  return activation == kernels::Rounding::kBf16 ? "bf16" : "fp32";
}

}  // namespace

std::string OperandName(const std::optional<formats::Quantization>& operand) {
  return operand ? formats::QuantizationName(*operand) : "";
}

bool SiteMatches(std::string_view pattern, std::string_view site) {
  // Both ends of the pattern are open, so taking each piece as far left as
  // possible finds a match if there is one.
  std::string_view rest = Text(pattern);
  while (true) {
    const size_t length = std::min(rest.find('*'), rest.size());
    const size_t found = site.find(rest.substr(0, length));
    if (found == std::string_view::npos) return false;
    if (length == rest.size()) return true;
    site.remove_prefix(found + length);
    rest.remove_prefix(length + 1);
  }
}

const std::string* FirstMatch(std::span<const std::string> patterns,
                              std::string_view site) {
  const auto match =
      std::find_if(patterns.begin(), patterns.end(),
                   [&](const std::string& p) { return SiteMatches(p, site); });
  return match == patterns.end() ? nullptr : &*match;
}

ResolvedRecipe::ResolvedRecipe(const Recipe& recipe,
                               std::span<const std::string> sites)
    : recipe_(recipe) {
  sites_.reserve(sites.size());
  for (const std::string& site : sites) {
    sites_.push_back(Resolve(recipe_, site));
  }
  Validate(recipe_, sites_);
}

const GemmPrecision& ResolvedRecipe::For(size_t site, GemmRole role) const {
  static const GemmPrecision kHighPrecision;
  ISOLOSS_ASSERT(site < sites_.size());
  return sites_[site].quantized ? recipe_.For(role) : kHighPrecision;
}

size_t ResolvedRecipe::quantized_gemms() const {
  size_t count = 0;
  for (size_t site = 0; site < sites_.size(); ++site) {
    for (const GemmRole role : kGemmRoles) {
      count += For(site, role).quantized() ? 1 : 0;
    }
  }
  return count;
}

std::string ResolvedRecipe::Describe() const {
  size_t width = 0;
  for (const ResolvedSite& resolved : sites_) {
    width = std::max(width, resolved.site.size());
  }
  std::string text;
  for (size_t site = 0; site < sites_.size(); ++site) {
    text += fmt::format("{:<{}}", sites_[site].site, width);
    for (const GemmRole role : kGemmRoles) {
      const GemmPrecision& gemm = For(site, role);
      text += fmt::format("  {} {} x {}", GemmRoleName(role),
                          DescribeOperand(gemm.left, recipe_.activation),
                          DescribeOperand(gemm.right, recipe_.activation));
    }
    text += fmt::format("  ({})\n", sites_[site].reason);
  }
  return text;
}

}  // namespace isoloss::precision
