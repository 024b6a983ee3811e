#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {
namespace {

bool MayMatchNothing(std::string_view pattern) {
  return pattern.ends_with('?');
}

/// Returns the pattern without its `?`.
std::string_view Text(std::string_view pattern) {
  if (MayMatchNothing(pattern)) pattern.remove_suffix(1);
  return pattern;
}

/// Returns N if the site is "layers.N.…", else nullopt.
std::optional<size_t> LayerOf(std::string_view site) {
  constexpr std::string_view kPrefix = "layers.";
  if (!site.starts_with(kPrefix)) return std::nullopt;
  site.remove_prefix(kPrefix.size());
  size_t layer = 0;
  const auto [end, error] =
      std::from_chars(site.data(), site.data() + site.size(), layer);
  return error == std::errc() ? std::optional(layer) : std::nullopt;
}

size_t LayersOf(std::span<const Site> sites) {
  size_t layers = 0;
  for (const Site& site : sites) {
    if (const auto layer = LayerOf(site.name)) {
      layers = std::max(layers, *layer + 1);
    }
  }
  return layers;
}

/// Says why a site that patterns choose stays as it is; "" if it does not.
std::string ReasonToKeep(const Recipe& recipe, const Site& site,
                         size_t layers) {
  if (const auto layer = LayerOf(site.name)) {
    if (*layer < recipe.first_layers) {
      return fmt::format("of the first {} layers", recipe.first_layers);
    }
    if (layers - *layer <= recipe.last_layers) {
      return fmt::format("of the last {} layers", recipe.last_layers);
    }
  }
  for (const size_t width : {site.in, site.out}) {
    if (width % recipe.width_multiple != 0) {
      return fmt::format("its width {} is no multiple of {}", width,
                         recipe.width_multiple);
    }
  }
  return "";
}

ResolvedSite Resolve(const Recipe& recipe, const Site& site, size_t layers) {
  if (!recipe.chooses_sites() && !recipe.quantizes_anything()) {
    return {site.name, false, "the recipe quantises nothing"};
  }
  const std::string* include = FirstMatch(recipe.include, site.name);
  const std::string* exclude = FirstMatch(recipe.exclude, site.name);
  if (include == nullptr) return {site.name, false, "not included"};
  if (exclude != nullptr) {
    return {site.name, false, fmt::format("excluded by `{}`", Text(*exclude))};
  }
  std::string kept = ReasonToKeep(recipe, site, layers);
  if (!kept.empty()) {
    return {site.name, false, std::move(kept), ResolvedSite::kOfRecipe, true};
  }
  ResolvedSite resolved = {site.name, true,
                           fmt::format("included by `{}`", Text(*include))};
  for (size_t i = 0; i < recipe.overrides.size(); ++i) {
    const std::string* match = FirstMatch(recipe.overrides[i].sites, site.name);
    if (match == nullptr) continue;
    resolved.override_index = i;
    resolved.reason += fmt::format(", overridden by `{}`", Text(*match));
    break;
  }
  return resolved;
}

/// Returns the dot-separated parts of all names, of which patterns are usually
/// made.
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
    // Layers and widths are the recipe's rules, and no fault of a pattern.
    if (resolved.quantized || resolved.kept) return;
    excluded = &resolved;
  }
  ISOLOSS_ASSERT(excluded != nullptr);
  ThrowError(ErrorKind::kConfig,
             "recipe {}: the include pattern `{}` must select a GEMM site, but "
             "all it matches are excluded again ({}: {}). Drop one of the two "
             "patterns.",
             recipe.name, pattern, excluded->site, excluded->reason);
}

/// Throws if no site that the patterns select matches an override, or if the
/// overrides before it have taken all such sites.
void RequireUse(const Recipe& recipe, size_t index,
                std::span<const ResolvedSite> sites) {
  const std::vector<std::string>& patterns = recipe.overrides[index].sites;
  if (std::ranges::any_of(patterns, MayMatchNothing)) return;
  for (const ResolvedSite& resolved : sites) {
    if (resolved.override_index == index) return;
    // Layers and widths are the recipe's rules, and no fault of a pattern.
    if (resolved.kept && FirstMatch(patterns, resolved.site) != nullptr) return;
  }
  ThrowError(ErrorKind::kConfig,
             "recipe {}: override {} (`{}`) must be for a GEMM site that is "
             "quantised and that no override before it matches, but there is "
             "none. Correct its patterns, or move it to the front.",
             recipe.name, index + 1, fmt::join(patterns, "`, `"));
}

/// Runs before anything is matched.
void RequireFewPatterns(const Recipe& recipe) {
  std::vector<const std::vector<std::string>*> lists = {&recipe.include,
                                                        &recipe.exclude};
  for (const SiteOverride& item : recipe.overrides) {
    lists.push_back(&item.sites);
    if (!item.sites.empty()) continue;
    ThrowError(ErrorKind::kConfig,
               "recipe {}: override {} has no pattern, but needs one or more. "
               "Name the sites that it is for.",
               recipe.name, lists.size() - 2);
  }
  size_t count = 0;
  size_t longest = 0;
  for (const auto* list : lists) {
    count += list->size();
    for (const std::string& pattern : *list) {
      longest = std::max(longest, pattern.size());
    }
  }
  if (count <= kMaxPatterns && longest <= kMaxPatternLength) return;
  ThrowError(ErrorKind::kConfig,
             "recipe {}: it has {} patterns of up to {} characters, but may "
             "have {} of up to {}. Use `*`.",
             recipe.name, count, longest, kMaxPatterns, kMaxPatternLength);
}

void ValidateProducts(const Recipe& recipe, const LinearPrecision& precision) {
  for (const GemmRole role : kGemmRoles) {
    const std::string wrong = WrongPrecision(precision.For(role), role);
    if (wrong.empty()) continue;
    ThrowError(ErrorKind::kConfig, "recipe {}: {} {}. Correct the recipe.",
               recipe.name, GemmRoleName(role), wrong);
  }
  const GemmPrecision& wgrad = precision.wgrad;
  if ((wgrad.left_again && !(wgrad.left && precision.dgrad.left)) ||
      (wgrad.right_again && !(wgrad.right && precision.fprop.left))) {
    ThrowError(
        ErrorKind::kConfig,
        "recipe {}: wgrad quantises again what was not quantised before, "
        "or not quantised by it. Give dy of dgrad, or x of fprop, and "
        "wgrad's operand a format.",
        recipe.name);
  }
  if ((wgrad.left_again && precision.dgrad.left->transforms()) ||
      (wgrad.right_again && precision.fprop.left->transforms())) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: wgrad quantises again what was transformed before, "
               "so that its values are no longer those of the tensor. Drop the "
               "transform of dgrad or fprop, or `dy_again` or `x_again`.",
               recipe.name);
  }
}

void ValidateOutsideSites(const Recipe& recipe) {
  const auto validate = [&](std::string_view key, const std::string& wrong) {
    if (wrong.empty()) return;
    ThrowError(ErrorKind::kConfig, "recipe {}: {} {}. Correct the recipe.",
               recipe.name, key, wrong);
  };
  validate("attention", WrongAttention(recipe.attention));
  if (recipe.norm_gains) {
    validate("norm_gains", WrongNormGains(*recipe.norm_gains));
  }
}

/// Errors   ConfigError if a pattern matches no site, or has no effect.
void RequirePatternsInUse(const Recipe& recipe,
                          std::span<const ResolvedSite> sites) {
  for (const std::string& pattern : recipe.include) {
    RequireMatch(recipe, "include", pattern, sites);
    RequireSelection(recipe, pattern, sites);
  }
  for (const std::string& pattern : recipe.exclude) {
    RequireMatch(recipe, "exclude", pattern, sites);
  }
  for (size_t i = 0; i < recipe.overrides.size(); ++i) {
    for (const std::string& pattern : recipe.overrides[i].sites) {
      RequireMatch(recipe, "overrides", pattern, sites);
    }
    RequireUse(recipe, i, sites);
  }
}

/// Errors   ConfigError if the recipe quantises no site.
void RequireSomeSite(const Recipe& recipe,
                     std::span<const ResolvedSite> sites) {
  const bool none = std::ranges::none_of(sites, &ResolvedSite::quantized);
  const auto kept = std::ranges::find_if(sites, &ResolvedSite::kept);
  if (none && kept != sites.end()) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: it includes sites of the model but keeps all of "
               "them in high precision, {} for one because of {}. Lower "
               "`first_layers`, `last_layers` or `width_multiple`, or include "
               "other sites.",
               recipe.name, kept->site, kept->reason);
  }
  if (none) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: its {} include patterns select none of the model's "
               "{} GEMM sites, but a recipe that quantises must select one. "
               "Give an include pattern that matches.",
               recipe.name, recipe.include.size(), sites.size());
  }
}

void Validate(const Recipe& recipe, std::span<const ResolvedSite> sites) {
  ValidateProducts(recipe, recipe);
  for (const SiteOverride& item : recipe.overrides) {
    ValidateProducts(recipe, item.precision);
  }
  ValidateOutsideSites(recipe);
  if (!recipe.chooses_sites()) {
    if (recipe.include.empty() && recipe.exclude.empty()) return;
    ThrowError(ErrorKind::kConfig,
               "recipe {}: {} include and {} exclude patterns were given, but "
               "the recipe quantises nothing{}. Drop them or choose another "
               "recipe.",
               recipe.name, recipe.include.size(), recipe.exclude.size(),
               recipe.quantizes_anything() ? " at GEMM sites" : "");
  }
  RequirePatternsInUse(recipe, sites);
  RequireSomeSite(recipe, sites);
}

std::vector<Site> WithoutWidths(std::span<const std::string> names) {
  std::vector<Site> sites;
  for (const std::string& name : names) sites.push_back({name});
  return sites;
}

std::string DescribeOperand(const std::optional<formats::Quantization>& operand,
                            kernels::Rounding activation) {
  if (operand) return OperandName(operand);
  return activation == kernels::Rounding::kBf16 ? "bf16" : "fp32";
}

}  // namespace

std::string OperandName(const std::optional<formats::Quantization>& operand) {
  return operand ? QuantizationName(*operand) : "";
}

std::string AccumulationName(const kernels::Accumulation& accumulation) {
  std::string text;
  if (accumulation.accumulator != nullptr) {
    text += accumulation.accumulator->name;
  }
  if (accumulation.interval > 0) {
    text += fmt::format("{}promote{}", text.empty() ? "" : "·",
                        accumulation.interval);
  }
  if (accumulation.outer == kernels::Rounding::kBf16) text += "·bf16";
  return text;
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
    : ResolvedRecipe(recipe, WithoutWidths(sites)) {}

ResolvedRecipe::ResolvedRecipe(const Recipe& recipe,
                               std::span<const Site> sites)
    : recipe_(recipe) {
  RequireFewPatterns(recipe_);
  sites_.reserve(sites.size());
  const size_t layers = LayersOf(sites);
  for (const Site& site : sites) {
    sites_.push_back(Resolve(recipe_, site, layers));
  }
  Validate(recipe_, sites_);
}

const GemmPrecision& ResolvedRecipe::For(size_t site, GemmRole role) const {
  static const GemmPrecision kHighPrecision;
  ISOLOSS_ASSERT(site < sites_.size());
  const ResolvedSite& resolved = sites_[site];
  if (!resolved.quantized) return kHighPrecision;
  return resolved.override_index == ResolvedSite::kOfRecipe
             ? recipe_.For(role)
             : recipe_.overrides[resolved.override_index].precision.For(role);
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
      text += fmt::format("  {} {}{} x {}{}", GemmRoleName(role),
                          gemm.left_again ? "again " : "",
                          DescribeOperand(gemm.left, recipe_.activation),
                          gemm.right_again ? "again " : "",
                          DescribeOperand(gemm.right, recipe_.activation));
      const std::string sums = AccumulationName(gemm.accumulation);
      if (!sums.empty()) text += fmt::format(" in {}", sums);
    }
    text += fmt::format("  ({})\n", sites_[site].reason);
  }
  if (recipe_.attention.quantizes()) {
    text += "attention";
    for (const auto& [key, operand] : kAttentionOperands) {
      const auto& given = recipe_.attention.*operand;
      if (given) text += fmt::format("  {} {}", key, OperandName(given));
    }
    text += "  (all layers)\n";
  }
  if (recipe_.norm_gains) {
    text += fmt::format("norm_gains  {}  (all norms)\n",
                        OperandName(recipe_.norm_gains));
  }
  if (recipe_.weight_gradients == kernels::Rounding::kBf16) {
    text += "weight_gradients  bf16  (all sites)\n";
  }
  return text;
}

}  // namespace isoloss::precision
