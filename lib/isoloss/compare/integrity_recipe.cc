// Rules of level L0 about what was computed: see integrity.cc.
#include <fmt/ranges.h>

#include "isoloss/compare/integrity_rules.h"
#include "isoloss/compare/treatment.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

// ---- recipe_ran ------------------------------------------------------------

void ReportRecipe(const Run& run, Findings& findings) {
  const auto& provenance = run.log.provenance;
  const auto& counted = run.log.steps.quantized_gemms;
  const int64_t planned = provenance.quantized_gemms_per_step;
  if (provenance.graph.empty() && provenance.IsForeign()) return;
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

/// All runs of one arm must have one recipe, exchange and perturbation.
void ReportMixedArm(const std::vector<const Run*>& runs, Findings& findings) {
  for (const Run* run : runs) {
    if (!SameExchange(*runs[0], *run)) {
      Report(findings, Severity::kIncomparable,
             "{}: rows travelled by {}, but in {} by {}, and an arm has one "
             "exchange. Run the arm again.",
             Label(*run), run->log.provenance.exchange, Label(*runs[0]),
             runs[0]->log.provenance.exchange);
    }
    if (!SamePerturbation(*runs[0], *run)) {
      Report(findings, Severity::kIncomparable,
             "{}: its initial weights were perturbed by '{}', but in {} by "
             "'{}', and an arm has one perturbation. Run the arm again.",
             Label(*run), run->log.provenance.perturbation, Label(*runs[0]),
             runs[0]->log.provenance.perturbation);
    }
    if (SameRecipe(*runs[0], *run)) continue;
    Report(findings, Severity::kIncomparable,
           "{}: recipe {} is not resolved as in {} ({}), but an arm has one "
           "recipe. Run the arm again.",
           Label(*run), run->log.provenance.recipe, Label(*runs[0]),
           runs[0]->log.provenance.recipe);
  }
}

/// A log shows nothing of itself.
void ReportOneFile(const Pairing& pairing, Findings& findings) {
  for (const SeedPair& pair : pairing.pairs) {
    if (SamenessOf(*pair.baseline, *pair.candidate) != Sameness::kFile) {
      continue;
    }
    Report(findings, Severity::kUnverified,
           "{} is given both as the new log and as the approved one, and a "
           "file is always equal to itself. Give the log of another run.",
           Label(*pair.candidate));
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
    if (!SamePerturbation(baseline, candidate)) {
      Report(findings, Severity::kIncomparable,
             "initial weights of arms {} and {} are perturbed by '{}' and by "
             "'{}', but a regression is judged between runs that begin alike. "
             "Ask for precision instead.",
             pairing.baseline_arm, pairing.candidate_arm,
             baseline.log.provenance.perturbation,
             candidate.log.provenance.perturbation);
    }
    ReportOneFile(pairing, findings);
    return findings;
  }
  // What another program did to a run is not known to be the same.
  if (!pairing.IsForeign() && SameTreatment(baseline, candidate) &&
      SamePerturbation(baseline, candidate)) {
    Report(findings, Severity::kBad,
           "arms {} and {} are identical: recipes {} and {} give every GEMM "
           "the same formats and rows travel in the same way, but a precision "
           "question needs a difference. Name another recipe or exchange, or "
           "give one of them `perturb` to see how far chance drives them "
           "apart.",
           pairing.baseline_arm, pairing.candidate_arm,
           baseline.log.provenance.recipe, candidate.log.provenance.recipe);
  }
  std::vector<int64_t> seeds;
  for (const SeedPair& pair : pairing.pairs) {
    if (runlog::EqualBits(pair.baseline->log.steps.loss_nats,
                          pair.candidate->log.steps.loss_nats)) {
      seeds.push_back(pair.seed);
    }
  }
  if (!seeds.empty()) {
    Report(findings, Severity::kBad,
           "arms {} and {} are identical: every loss is the same with seed{} "
           "{}. The declared change did nothing.",
           pairing.baseline_arm, pairing.candidate_arm,
           seeds.size() == 1 ? "" : "s", fmt::join(seeds, ", "));
  }
  return findings;
}

}  // namespace isoloss::compare
