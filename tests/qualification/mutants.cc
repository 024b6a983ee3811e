#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/ensembles/benign_variants.h"
#include "isoloss/train/arm_recipes.h"
#include "qualification/groups.h"
#include "qualification/mutant.h"

namespace isoloss::qualification {
namespace {

std::vector<Mutant> MakeAll() {
  std::vector<Mutant> all;
  for (const auto group :
       {ScaleMutants, ElementCastMutants, LayoutMutants, StaleStateMutants,
        AccumulationMutants, RoutingMutants, ExchangeMutants, OptimizerMutants,
        GateMutants}) {
    for (Mutant& mutant : group()) all.push_back(std::move(mutant));
  }
  for (size_t i = 0; i < ensembles::kBenignFamilies; ++i) {
    all.push_back(BenignMutant(i));
  }
  return all;
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
  ThrowError(ErrorKind::kConfig,
             "mutants: there is none named `{}` among {}.{}", name,
             names.size(), DidYouMean(name, names));
}

Mutant BenignMutant(size_t index) {
  const ensembles::BenignVariant variant =
      ensembles::MakeBenignVariant(index, 0);
  return {.name = variant.name,
          .group = "benign",
          .kind = Class::kBenign,
          .what = variant.what,
          .link = "",
          .plant = [index](MutantContext& context) {
            static_cast<train::Seams&>(context.hooks) =
                ensembles::MakeBenignVariant(index, context.seed).seams;
          }};
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

}  // namespace isoloss::qualification
