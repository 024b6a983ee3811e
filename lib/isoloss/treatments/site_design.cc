#include "isoloss/treatments/site_design.h"

#include <algorithm>
#include <string_view>

#include "isoloss/precision/site_presets.h"
#include "isoloss/train/arm_recipes.h"

namespace isoloss::treatments {
namespace {

/// A published filter chooses products. It may leave wgrad of routed experts in
/// high precision besides.
struct PublishedFilter {
  const char* preset;
  bool expert_wgrad;  ///< of routed experts quantised too
};
constexpr PublishedFilter kPublishedFilters[] = {
    {"nebius_16b", false}, {"routed_experts", true}, {"llama4_scout", true}};

/// Makes a name for files, of letters, digits, '-' and '_'.
std::string FileName(std::string name) {
  for (char& c : name) {
    if (c == '.' || c == ' ') c = c == '.' ? '_' : '-';
  }
  return name;
}

std::string ProductName(const SiteProducts::Entry& product) {
  return product.kind + " " +
         std::string(precision::GemmRoleName(product.role));
}

}  // namespace

train::Arm ArmOf(const SiteProducts& products, const train::Arm& base,
                 std::span<const size_t> chosen, const std::string& name) {
  train::Arm arm{.name = name, .exchange = base.exchange};
  std::string recipe = name;
  std::ranges::replace(recipe, '-', '_');
  arm.Use(products.RecipeOf(chosen, recipe));
  return arm;
}

std::vector<estimators::NamedSet> SetsOf(const SiteProducts& products,
                                         const train::Arm& arm) {
  std::vector<estimators::NamedSet> sets = {
      {.name = "arm " + arm.name,
       .source = "the sites of its own recipe",
       .products = products.ProductsOf(train::ArmRecipe(arm))}};
  for (const PublishedFilter& filter : kPublishedFilters) {
    const auto presets = precision::AllSitePresets();
    const auto preset =
        std::ranges::find(presets, filter.preset, &precision::SitePreset::name);
    estimators::NamedSet set{
        .name = preset->name,
        .source = preset->source,
        .products = products.ProductsAt(preset->include, preset->exclude)};
    if (!filter.expert_wgrad) {
      std::erase_if(set.products, [&](size_t product) {
        const SiteProducts::Entry& p = products.products()[product];
        return p.role == precision::GemmRole::kWgrad &&
               p.kind.starts_with("routed_experts");
      });
    }
    if (!set.products.empty()) sets.push_back(std::move(set));
  }
  return sets;
}

std::vector<train::Arm> ArmsOfDesign(
    const SiteProducts& products, const std::vector<estimators::NamedSet>& sets,
    const train::Arm& baseline) {
  std::vector<train::Arm> arms = {baseline};
  const auto add = [&](const std::vector<size_t>& chosen,
                       const std::string& name) {
    arms.push_back(ArmOf(products, baseline, chosen, FileName(name)));
  };
  add(products.AllBut({}), "all");
  for (const char* what : {"only-", "all_but-"}) {
    for (size_t product = 0; product < products.products().size(); ++product) {
      const std::vector alone = {product};
      add(what == std::string_view("only-") ? alone : products.AllBut(alone),
          what + ProductName(products.products()[product]));
    }
  }
  for (const estimators::NamedSet& set : sets)
    add(set.products, "set-" + set.name);
  return arms;
}

}  // namespace isoloss::treatments
