// Rules of level L0 about what was computed: see integrity.cc.
#include "isoloss/compare/integrity_rules.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

// ---- recipe_ran ------------------------------------------------------------

void ReportRecipe(const Run& run, Findings& findings) {
  const auto& provenance = run.log.provenance;
  const auto& counted = run.log.steps.quantized_gemms;
  const int64_t planned = provenance.quantized_gemms_per_step;
  if (provenance.graph.empty()) {
    Report(findings, Severity::kUnverified,
           "{}: no resolved recipe in /recipe, so nobody can tell whether "
           "recipe {} really ran.",
           Label(run), provenance.recipe);
  } else if (const runlog::GemmCounts asked =
                 CountGemms(provenance.graph.recipe);
             planned != asked.quantized ||
             provenance.gemms_per_step != asked.all) {
    Report(findings, Severity::kBad,
           "{}: recipe {} plans {} quantised GEMMs per step and {} in all, but "
           "/recipe gives formats to {} of {}. The recipe was not applied as "
           "written.",
           Label(run), provenance.recipe, planned, provenance.gemms_per_step,
           asked.quantized, asked.all);
  }
  for (size_t i = 0; i < counted.size(); ++i) {
    if (counted[i] == planned) continue;
    Report(findings, Severity::kBad,
           "{}: {} quantised GEMMs ran in step {}, but recipe {} asks for {}. "
           "The recipe did not run as written.",
           Label(run), counted[i], run.log.steps.step[i], provenance.recipe,
           planned);
    return;
  }
}

}  // namespace

Findings CheckRecipeRan(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) ReportRecipe(*run, findings);
  return findings;
}

namespace {

// ---- declared_change -------------------------------------------------------

/// Whether the GEMMs of both get the same: by /recipe, by which the judge knows
/// what ran; by the text in logs of layouts before it.
bool SameFormats(const runlog::Provenance& a, const runlog::Provenance& b) {
  if (!a.graph.empty() && !b.graph.empty()) {
    return a.graph.recipe == b.graph.recipe;
  }
  return a.resolved_recipe == b.resolved_recipe;
}

bool SameRecipe(const Run& a, const Run& b) {
  return a.log.provenance.recipe == b.log.provenance.recipe &&
         SameFormats(a.log.provenance, b.log.provenance);
}

/// Whether two recipes, whatever their names, come to the same. Formats do not
/// tell bf16 from fp32, which quantise nothing; what the program computes does.
bool SameArithmetic(const Run& a, const Run& b) {
  return !a.log.provenance.resolved_recipe.empty() &&
         SameFormats(a.log.provenance, b.log.provenance) &&
         a.log.provenance.numerics_digest == b.log.provenance.numerics_digest;
}

/// Logs of schema version 1 do not name their exchange, which had no options.
bool SameExchange(const Run& a, const Run& b) {
  const std::string& one = a.log.provenance.exchange;
  const std::string& other = b.log.provenance.exchange;
  return one.empty() || other.empty() || one == other;
}

/// All runs of one arm must have one recipe and one exchange.
void ReportMixedArm(const std::vector<const Run*>& runs, Findings& findings) {
  for (const Run* run : runs) {
    if (!SameExchange(*runs[0], *run)) {
      Report(findings, Severity::kIncomparable,
             "{}: rows travelled by {}, but in {} by {}, and an arm has one "
             "exchange. Run the arm again.",
             Label(*run), run->log.provenance.exchange, Label(*runs[0]),
             runs[0]->log.provenance.exchange);
    }
    if (SameRecipe(*runs[0], *run)) continue;
    Report(findings, Severity::kIncomparable,
           "{}: recipe {} is not resolved as in {} ({}), but an arm has one "
           "recipe. Run the arm again.",
           Label(*run), run->log.provenance.recipe, Label(*runs[0]),
           runs[0]->log.provenance.recipe);
  }
}

}  // namespace

Findings CheckDeclaredChange(const Pairing& pairing, Question question) {
  Findings findings;
  ReportMixedArm(pairing.baseline, findings);
  ReportMixedArm(pairing.candidate, findings);
  const Run& baseline = *pairing.baseline[0];
  const Run& candidate = *pairing.candidate[0];
  if (question == Question::kRegression) {
    if (!SameRecipe(baseline, candidate)) {
      Report(findings, Severity::kIncomparable,
             "arms {} and {} have recipes {} and {}, but a regression is "
             "judged between runs of one recipe. Ask for precision instead.",
             pairing.baseline_arm, pairing.candidate_arm,
             baseline.log.provenance.recipe, candidate.log.provenance.recipe);
    }
    if (!SameExchange(baseline, candidate)) {
      Report(findings, Severity::kIncomparable,
             "rows of arms {} and {} travelled by {} and by {}, but a "
             "regression is judged between runs of one exchange. Ask for "
             "precision instead.",
             pairing.baseline_arm, pairing.candidate_arm,
             baseline.log.provenance.exchange,
             candidate.log.provenance.exchange);
    }
    return findings;
  }
  if (SameExchange(baseline, candidate) &&
      (SameRecipe(baseline, candidate) ||
       SameArithmetic(baseline, candidate))) {
    Report(findings, Severity::kBad,
           "arms {} and {} are identical: recipes {} and {} give every GEMM "
           "the same formats and rows travel in the same way, but a precision "
           "question needs a difference. Name another recipe or exchange.",
           pairing.baseline_arm, pairing.candidate_arm,
           baseline.log.provenance.recipe, candidate.log.provenance.recipe);
  }
  for (const SeedPair& pair : pairing.pairs) {
    const auto& a = pair.baseline->log.steps.loss_nats;
    const auto& b = pair.candidate->log.steps.loss_nats;
    if (!runlog::EqualBits(a, b)) continue;
    Report(findings, Severity::kBad,
           "arms {} and {} are identical: with seed {} every one of {} losses "
           "has the same bits. The declared change did nothing.",
           pairing.baseline_arm, pairing.candidate_arm, pair.seed, a.size());
  }
  return findings;
}

}  // namespace isoloss::compare
