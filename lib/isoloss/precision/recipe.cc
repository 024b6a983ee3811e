#include "isoloss/precision/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/precision/registry.h"

namespace isoloss::precision {
namespace {

const std::vector<Recipe>& Table() {
  static const std::vector<Recipe> table = {
#define ISOLOSS_RECIPE(name) recipes::name(),
#include "isoloss/precision/recipes.def"
#undef ISOLOSS_RECIPE
  };
  return table;
}

}  // namespace

std::string_view GemmRoleName(GemmRole role) {
  switch (role) {
    case GemmRole::kFprop:
      return "fprop";
    case GemmRole::kDgrad:
      return "dgrad";
    case GemmRole::kWgrad:
      return "wgrad";
  }
  return "unknown";
}

const GemmPrecision& LinearPrecision::For(GemmRole role) const {
  switch (role) {
    case GemmRole::kFprop:
      return fprop;
    case GemmRole::kDgrad:
      return dgrad;
    case GemmRole::kWgrad:
      break;
  }
  return wgrad;
}

GemmPrecision& LinearPrecision::For(GemmRole role) {
  return const_cast<GemmPrecision&>(std::as_const(*this).For(role));
}

bool LinearPrecision::quantizes() const {
  return std::any_of(std::begin(kGemmRoles), std::end(kGemmRoles),
                     [&](GemmRole role) { return For(role).quantized(); });
}

LinearPrecision AttentionPrecision::Scores() const {
  LinearPrecision precision;
  precision.fprop = {q, k};
  if (d_scores) {
    precision.dgrad = {d_scores, k};
    precision.wgrad = {d_scores, q};
  }
  return precision;
}

LinearPrecision AttentionPrecision::Values() const {
  LinearPrecision precision;
  precision.fprop = {p, v};
  if (d_out) {
    precision.dgrad = {d_out, v};
    precision.wgrad = {d_out, p};
  }
  return precision;
}

bool Recipe::quantizes() const {
  return LinearPrecision::quantizes() ||
         std::ranges::any_of(overrides, [](const SiteOverride& item) {
           return item.precision.quantizes();
         });
}

bool Recipe::chooses_sites() const {
  return !is_plain() || std::ranges::any_of(overrides, [](const auto& item) {
    return !item.precision.is_plain();
  });
}

bool Recipe::quantizes_anything() const {
  return quantizes() || attention.quantizes() || norm_gains.has_value();
}

bool Recipe::SameContent(const Recipe& other) const {
  return static_cast<const LinearPrecision&>(*this) == other &&
         activation == other.activation &&
         weight_gradients == other.weight_gradients &&
         include == other.include && exclude == other.exclude &&
         first_layers == other.first_layers &&
         last_layers == other.last_layers &&
         width_multiple == other.width_multiple &&
         overrides == other.overrides && attention == other.attention &&
         norm_gains == other.norm_gains;
}

std::vector<const Recipe*> AllRecipes() {
  std::vector<const Recipe*> recipes;
  for (const Recipe& recipe : Table()) recipes.push_back(&recipe);
  return recipes;
}

const Recipe& RecipeByName(std::string_view name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : Table()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  ThrowError(ErrorKind::kConfig,
             "recipe: `{}` was given, but it must be one of {}.{}", name,
             fmt::join(names, ", "), DidYouMean(name, names));
}

}  // namespace isoloss::precision
