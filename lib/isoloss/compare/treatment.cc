#include "isoloss/compare/treatment.h"

namespace isoloss::compare {
namespace {

/// Returns whether both logs give the GEMMs the same formats. /recipe tells
/// what ran; in logs of older layouts, the text does.
bool SameFormats(const runlog::Provenance& a, const runlog::Provenance& b) {
  if (!a.graph.empty() && !b.graph.empty()) {
    return a.graph.recipe == b.graph.recipe && a.graph.phases == b.graph.phases;
  }
  return a.resolved_recipe == b.resolved_recipe;
}

/// Returns whether two recipes of any names come to the same. Formats do not
/// tell bf16 from fp32, which quantise nothing; the numerics digest does.
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
