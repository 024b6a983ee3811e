#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/mutants/groups.h"
#include "isoloss/mutants/mutant.h"
#include "isoloss/train/arm_recipes.h"

namespace isoloss::mutants {
namespace {

constexpr std::string_view kBenignPrefix = "benign_";

std::vector<Mutant> MakeAll() {
  std::vector<Mutant> all;
  for (const auto group :
       {ScaleMutants, ElementCastMutants, LayoutMutants, StaleStateMutants,
        AccumulationMutants, RoutingMutants, ExchangeMutants, OptimizerMutants,
        GateMutants}) {
    for (Mutant& mutant : group()) all.push_back(std::move(mutant));
  }
  for (size_t i = 0; i < BenignFamilies(); ++i) all.push_back(BenignVariant(i));
  return all;
}

/// N of "benign_<family>_N" if that is a name that BenignVariant gives.
std::optional<size_t> BenignIndex(std::string_view name) {
  if (!name.starts_with(kBenignPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(name.rfind('_') + 1);
  size_t index = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      BenignVariant(index).name != name) {
    return std::nullopt;
  }
  return index;
}

}  // namespace

std::string_view ClassName(Class kind) {
  switch (kind) {
    case Class::kBug:
      return "bug";
    case Class::kSpecificationChange:
      return "specification_change";
    case Class::kBenign:
      return "benign";
    case Class::kEquivalent:
      return "equivalent";
  }
  ISOLOSS_ASSERT(false);
  return "";
}

std::span<const Mutant> AllMutants() {
  static const std::vector<Mutant> all = MakeAll();
  return all;
}

Mutant MutantByName(std::string_view name) {
  std::vector<std::string> names;
  for (const Mutant& mutant : AllMutants()) {
    if (mutant.name == name) return mutant;
    names.push_back(mutant.name);
  }
  if (const auto index = BenignIndex(name)) return BenignVariant(*index);
  ThrowError(ErrorKind::kConfig,
             "mutants: there is none named `{}` among {}. `isoloss lab mutants "
             "list` shows them.{}",
             name, names.size(), DidYouMean(name, names));
}

train::RunHooks Plant(const Mutant& mutant, const train::Experiment& experiment,
                      const train::Arm& arm, uint64_t seed) {
  train::RunHooks hooks;
  hooks.perturbation =
      fmt::format("{} ({}, {}): {}", mutant.name, ClassName(mutant.kind),
                  mutant.group, mutant.what);
  if (mutant.quantized_products && !train::ArmRecipe(arm).quantizes()) {
    ThrowError(ErrorKind::kConfig,
               "mutants: `{}` changes quantised products, but recipe {} of arm "
               "{} quantises nothing. Plant it in another arm.",
               mutant.name, arm.recipe, arm.name);
  }
  if (!mutant.plant) return hooks;
  const auto clock = std::make_shared<RunClock>();
  hooks.before_step = [clock](int64_t step) { clock->step = step; };
  MutantContext context = {experiment, arm, seed, clock, hooks};
  mutant.plant(context);
  return hooks;
}

}  // namespace isoloss::mutants
