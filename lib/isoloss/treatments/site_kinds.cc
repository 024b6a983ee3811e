#include "isoloss/treatments/site_kinds.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"

namespace isoloss::treatments {
namespace {

using precision::GemmRole;
using precision::LinearPrecision;
using precision::Recipe;
using precision::ResolvedRecipe;

/// Returns the candidate, applied to every site.
Recipe Everywhere(Recipe recipe) {
  if (!recipe.quantizes()) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: it quantises no product of a GEMM site, but a study "
               "of sites asks which of them can be. Give --arm another arm.",
               recipe.name);
  }
  recipe.include = {"*"};
  recipe.exclude.clear();
  return recipe;
}

double ScaleBits(const formats::Quantization& operand) {
  const auto values =
      static_cast<double>(operand.cell.rows * operand.cell.cols);
  if (values == 0) return 0;  // of the tensor's whole extent
  switch (operand.scale_format) {
    case formats::ScaleFormat::kNone:
      return 0;
    case formats::ScaleFormat::kE8m0:
    case formats::ScaleFormat::kE4m3:
      return 8 / values;
    case formats::ScaleFormat::kPow2:
    case formats::ScaleFormat::kFp32:
      return 32 / values;
  }
  return 0;
}

double BitsOf(const std::optional<formats::Quantization>& operand) {
  return operand ? operand->element->bits() + ScaleBits(*operand)
                 : estimators::kHighPrecisionBits;
}

int ElementBits(const std::optional<formats::Quantization>& operand) {
  return operand ? operand->element->bits() : 16;
}

/// Returns `precision` with only the products that `keep` names.
LinearPrecision Keep(const LinearPrecision& precision,
                     std::span<const GemmRole> keep) {
  LinearPrecision kept;
  for (const GemmRole role : keep) kept.For(role) = precision.For(role);
  if (!kept.dgrad.left) kept.wgrad.left_again = false;
  if (!kept.fprop.left) kept.wgrad.right_again = false;
  return kept;
}

/// A group's kinds get the same precision.
struct Group {
  LinearPrecision precision;
  std::vector<std::string> kinds = {};
};

}  // namespace

std::string KindOf(std::string_view site) {
  constexpr std::string_view kLayers = "layers.";
  if (site.starts_with(kLayers)) {
    site.remove_prefix(kLayers.size());
    site.remove_prefix(std::min(site.find('.') + 1, site.size()));
  }
  constexpr std::string_view kMoe = "moe.";
  if (site.starts_with(kMoe)) site.remove_prefix(kMoe.size());
  if (site == "attention.wq_a" || site == "attention.wq_b") {
    site = "attention.wq";
  }
  return std::string(site);
}

SiteProducts::SiteProducts(const Recipe& candidate,
                           const model::ModelConfig& model)
    : candidate_(Everywhere(candidate)), sites_(model::GemmSites(model)) {
  const ResolvedRecipe resolved(candidate_, sites_);
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (!resolved.sites()[i].quantized) continue;
    Kind kind{.name = KindOf(sites_[i].name), .precision = {}};
    for (const GemmRole role : precision::kGemmRoles) {
      kind.precision.For(role) = resolved.For(i, role);
    }
    if (!kind.precision.quantizes()) continue;
    const auto known = std::ranges::find(kinds_, kind.name, &Kind::name);
    if (known == kinds_.end()) {
      kinds_.push_back(std::move(kind));
    } else if (known->precision != kind.precision) {
      ThrowError(ErrorKind::kConfig,
                 "recipe {}: {} gets another format than other sites of {}, "
                 "but a study of sites takes all layers alike. Give its "
                 "overrides patterns without a layer.",
                 candidate.name, sites_[i].name, kind.name);
    }
  }
  for (const Kind& kind : kinds_) {
    for (const GemmRole role : precision::kGemmRoles) {
      if (kind.precision.For(role).quantized()) {
        products_.push_back({kind.name, role});
      }
    }
  }
}

std::vector<size_t> SiteProducts::AllBut(
    std::span<const size_t> without) const {
  std::vector<size_t> all;
  for (size_t product = 0; product < products_.size(); ++product) {
    if (std::ranges::count(without, product) == 0) all.push_back(product);
  }
  return all;
}

const LinearPrecision& SiteProducts::PrecisionOf(
    const std::string& kind) const {
  return std::ranges::find(kinds_, kind, &Kind::name)->precision;
}

estimators::QuantizedProduct SiteProducts::Quantized(size_t product) const {
  const auto& [kind, role] = products_[product];
  const precision::GemmPrecision& gemm = PrecisionOf(kind).For(role);
  return {.kind = kind,
          .role = static_cast<size_t>(role),
          .format = {.left_bits = BitsOf(gemm.left),
                     .right_bits = BitsOf(gemm.right),
                     .multiply_bits = std::max(ElementBits(gemm.left),
                                               ElementBits(gemm.right))}};
}

std::vector<size_t> SiteProducts::ProductsOf(const Recipe& recipe) const {
  const ResolvedRecipe resolved(recipe, sites_);
  std::vector<size_t> found;
  for (size_t product = 0; product < products_.size(); ++product) {
    for (size_t i = 0; i < sites_.size(); ++i) {
      if (KindOf(sites_[i].name) == products_[product].kind &&
          resolved.For(i, products_[product].role).quantized()) {
        found.push_back(product);
        break;
      }
    }
  }
  return found;
}

std::vector<size_t> SiteProducts::ProductsAt(
    std::span<const std::string> include,
    std::span<const std::string> exclude) const {
  std::vector<size_t> found;
  for (size_t product = 0; product < products_.size(); ++product) {
    const bool chosen = std::ranges::any_of(sites_, [&](const auto& site) {
      return KindOf(site.name) == products_[product].kind &&
             precision::FirstMatch(include, site.name) != nullptr &&
             precision::FirstMatch(exclude, site.name) == nullptr;
    });
    if (chosen) found.push_back(product);
  }
  return found;
}

Recipe SiteProducts::RecipeOf(std::span<const size_t> products,
                              const std::string& name) const {
  std::vector<Group> groups;
  Recipe recipe = candidate_;
  recipe.include.clear();
  for (const Kind& kind : kinds_) {
    std::vector<GemmRole> roles;
    for (const size_t product : products) {
      if (products_[product].kind == kind.name)
        roles.push_back(products_[product].role);
    }
    if (roles.empty()) continue;
    recipe.include.push_back(kind.name);
    const LinearPrecision kept = Keep(kind.precision, roles);
    const auto group = std::ranges::find(groups, kept, &Group::precision);
    if (group == groups.end()) {
      groups.push_back({kept, {kind.name}});
    } else {
      group->kinds.push_back(kind.name);
    }
  }
  // The recipe's own products are those of most kinds; the remaining groups
  // are overrides.
  std::ranges::stable_sort(groups, std::ranges::greater(),
                           [](const Group& g) { return g.kinds.size(); });
  recipe.name = name;
  recipe.attention = {};
  recipe.norm_gains.reset();
  recipe.overrides.clear();
  static_cast<LinearPrecision&>(recipe) =
      groups.empty() ? LinearPrecision() : groups.front().precision;
  for (size_t i = 1; i < groups.size(); ++i) {
    recipe.overrides.push_back({groups[i].kinds, groups[i].precision});
  }
  return recipe;
}

}  // namespace isoloss::treatments
