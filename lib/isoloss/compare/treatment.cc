#include "isoloss/compare/treatment.h"

namespace isoloss::compare {
namespace {

/// Whether the GEMMs of both get the same: by /recipe, by which the judge knows
/// what ran; by the text in logs of layouts before it.
bool SameFormats(const runlog::Provenance& a, const runlog::Provenance& b) {
  if (!a.graph.empty() && !b.graph.empty()) {
    return a.graph.recipe == b.graph.recipe;
  }
  return a.resolved_recipe == b.resolved_recipe;
}

/// Whether two recipes, whatever their names, come to the same. Formats do not
/// tell bf16 from fp32, which quantise nothing; what the program computes does.
bool SameArithmetic(const Run& a, const Run& b) {
  return !a.log.provenance.resolved_recipe.empty() &&
         SameFormats(a.log.provenance, b.log.provenance) &&
         a.log.provenance.numerics_digest == b.log.provenance.numerics_digest;
}

}  // namespace

bool SameRecipe(const Run& a, const Run& b) {
  return a.log.provenance.recipe == b.log.provenance.recipe &&
         SameFormats(a.log.provenance, b.log.provenance);
}

bool SameExchange(const Run& a, const Run& b) {
  const std::string& one = a.log.provenance.exchange;
  const std::string& other = b.log.provenance.exchange;
  return one.empty() || other.empty() || one == other;
}

bool SameTreatment(const Run& a, const Run& b) {
  return SameExchange(a, b) && (SameRecipe(a, b) || SameArithmetic(a, b));
}

bool SamePerturbation(const Run& a, const Run& b) {
  return a.log.provenance.perturbation == b.log.provenance.perturbation;
}

bool IsNullOf(const Run& run, const Run& baseline) {
  return SameTreatment(run, baseline) && !SamePerturbation(run, baseline);
}

}  // namespace isoloss::compare
