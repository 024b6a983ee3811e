#include "isoloss/compare/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/formats/format.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::compare {
namespace {

using Findings = std::vector<Finding>;

template <typename... Args>
void Report(Findings& findings, Severity severity,
            fmt::format_string<Args...> format, Args&&... args) {
  findings.push_back(
      {severity, fmt::format(format, std::forward<Args>(args)...)});
}

// ---- seeds -----------------------------------------------------------------

std::string SeedList(const std::vector<const Run*>& runs) {
  std::string list;
  for (const Run* run : runs) {
    list +=
        fmt::format("{}{}", list.empty() ? "" : ", ", run->log.provenance.seed);
  }
  return list.empty() ? "no run" : list;
}

bool IsCopy(const Run& a, const Run& b) {
  const auto& losses = a.log.steps.loss_nats;
  const auto& others = b.log.steps.loss_nats;
  // Runs that hold nothing but NaN are alike without being copies.
  const bool finite = std::any_of(losses.begin(), losses.end(),
                                  [](double x) { return std::isfinite(x); });
  return finite && losses.size() == others.size() &&
         !FirstDifferentBits(losses, others);
}

/// A log copied under another seed would count one experiment twice.
void ReportCopies(const std::vector<const Run*>& runs, Findings& findings) {
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    const auto original =
        std::find_if(runs.begin(), run,
                     [&](const Run* other) { return IsCopy(*other, **run); });
    if (original == run) continue;
    Report(findings, Severity::kIncomparable,
           "{}: every loss has the bits of {}, but seeds must be independent "
           "runs. Remove the copy.",
           Label(**run), Label(**original));
  }
}

Findings CheckSeeds(const Pairing& pairing, Question question) {
  Findings findings;
  const bool paired = !pairing.pairs.empty() &&
                      pairing.pairs.size() == pairing.baseline.size() &&
                      pairing.pairs.size() == pairing.candidate.size();
  if (!paired) {
    Report(findings, Severity::kIncomparable,
           "seeds: arm {} has {}, arm {} has {}, but each seed needs exactly "
           "one run in either arm. Run the missing ones or give one log each.",
           pairing.baseline_arm, SeedList(pairing.baseline),
           pairing.candidate_arm, SeedList(pairing.candidate));
    return findings;
  }
  const auto& declared = pairing.candidate[0]->log.provenance;
  if (question == Question::kPrecision &&
      pairing.candidate_arm == declared.baseline_arm) {
    Report(findings, Severity::kIncomparable,
           "{}: arm {} is the experiment's baseline, but was given as the "
           "candidate. Swap the two arms.",
           Label(*pairing.candidate[0]), pairing.candidate_arm);
  }
  ReportCopies(pairing.baseline, findings);
  ReportCopies(pairing.candidate, findings);
  return findings;
}

// ---- configuration ---------------------------------------------------------

/// A provenance text that must be recorded and the same in all runs.
struct Agreement {
  std::string_view name;
  std::string runlog::Provenance::*field;
  std::string_view remedy;
  bool across_versions;  ///< checked too when the question is regression
};

constexpr Agreement kAgreements[] = {
    {"experiment_name", &runlog::Provenance::experiment_name,
     "Compare runs of one experiment.", true},
    {"baseline_arm", &runlog::Provenance::baseline_arm,
     "Compare runs of one experiment.", true},
    {"config_digest", &runlog::Provenance::config_digest,
     "Everything but the arm must be the same: run both arms from one "
     "experiment file.",
     true},
    {"corpus_digest", &runlog::Provenance::corpus_digest,
     "Run both arms on the same bytes.", true},
    {"tool_version", &runlog::Provenance::tool_version,
     "Run both arms with one build.", false},
    {"commit", &runlog::Provenance::commit, "Run both arms with one build.",
     false},
};

void ReportDisagreement(const Run& first, const Run& other,
                        const Agreement& rule, Findings& findings) {
  const std::string& a = first.log.provenance.*rule.field;
  const std::string& b = other.log.provenance.*rule.field;
  if (!a.empty() && a == b) return;
  Report(findings, Severity::kIncomparable,
         "{}: {} is '{}', but {} has '{}' and they must be recorded and equal. "
         "{}",
         Label(other), rule.name, b, Label(first), a, rule.remedy);
}

Findings CheckConfiguration(const Pairing& pairing, Question question) {
  constexpr Agreement kInitialWeights = {
      "initial_weights_digest", &runlog::Provenance::initial_weights_digest,
      "Both runs of a seed must start from the same weights.", true};
  Findings findings;
  const Run& first = *pairing.baseline[0];
  for (const Agreement& rule : kAgreements) {
    if (question == Question::kRegression && !rule.across_versions) continue;
    for (const Run* run : pairing.All()) {
      ReportDisagreement(first, *run, rule, findings);
    }
  }
  for (const SeedPair& pair : pairing.pairs) {
    ReportDisagreement(*pair.baseline, *pair.candidate, kInitialWeights,
                       findings);
  }
  return findings;
}

// ---- steps -----------------------------------------------------------------

bool ColumnsFit(const runlog::RunLog& log) {
  const auto& eval = log.eval;
  bool fit = log.steps.loss_nats.size() == log.steps.step.size() &&
             eval.loss_nats.size() == eval.step.size() && eval.sequences >= 0;
  const auto fit_or_absent = [&fit](const auto& column, size_t rows) {
    fit = fit && (column.empty() || column.size() == rows);
  };
  runlog::VisitSteps(
      [&](const runlog::Field&, const auto& column) {
        fit_or_absent(column, log.steps.step.size());
      },
      log.steps);
  fit_or_absent(eval.per_sequence_loss_nats,
                eval.step.size() * static_cast<size_t>(eval.sequences));
  return fit;
}

/// Whether the values ascend strictly within [least, most].
bool Ascend(const std::vector<int64_t>& values, int64_t least, int64_t most) {
  return values.empty() ||
         (values.front() >= least && values.back() <= most &&
          std::adjacent_find(values.begin(), values.end(),
                             std::greater_equal<>()) == values.end());
}

/// "step 7 is missing" and the like: the first place where `step` is not
/// 1, 2, 3, ...
std::string StepFault(const std::vector<int64_t>& step) {
  for (size_t i = 0; i < step.size(); ++i) {
    const int64_t expected = static_cast<int64_t>(i) + 1;
    if (step[i] == expected) continue;
    if (std::find(step.begin(), step.end(), expected) == step.end()) {
      return fmt::format("step {} is missing", expected);
    }
    if (i > 0 && step[i] == step[i - 1]) {
      return fmt::format("step {} occurs twice", step[i]);
    }
    return fmt::format("step {} stands where step {} belongs", step[i],
                       expected);
  }
  return "";
}

void ReportSteps(const Run& run, Findings& findings) {
  const auto& log = run.log;
  const int64_t planned = log.provenance.steps_planned;
  const int64_t found = static_cast<int64_t>(log.steps.step.size());
  const std::string label = Label(run);
  if (found == 0 || planned <= 0) {
    Report(findings, Severity::kIncomparable,
           "{}: {} steps of {} planned, but an empty run proves nothing. Run "
           "it.",
           label, found, planned);
    return;
  }
  if (!ColumnsFit(log)) {
    Report(findings, Severity::kIncomparable,
           "{}: columns of /steps or /eval differ in length, but each must "
           "have one value per step ({}). The log is damaged: run it again.",
           label, found);
    return;
  }
  const std::string fault = StepFault(log.steps.step);
  if (!fault.empty() || found > planned) {
    Report(findings, Severity::kIncomparable,
           "{}: {}, but steps must be 1 to {}, each once and in order. Run it "
           "again.",
           label, fault.empty() ? fmt::format("{} steps", found) : fault,
           planned);
    return;
  }
  if (!Ascend(log.steps.tokens_seen, 1, std::numeric_limits<int64_t>::max()) ||
      !Ascend(log.eval.step, 0, planned)) {
    Report(findings, Severity::kIncomparable,
           "{}: /steps/tokens_seen or /eval/step is out of order, but tokens "
           "must ascend from 1 and evaluations from 0 to {}. The log is "
           "damaged: run it again.",
           label, planned);
    return;
  }
  if (found == planned && log.provenance.complete) return;
  const auto& norms = log.steps.grad_norm;
  if (!std::isfinite(log.steps.loss_nats.back()) ||
      (!norms.empty() && !std::isfinite(norms.back()))) {
    Report(findings, Severity::kBad,
           "{}: stopped at step {} of {} with a loss or gradient norm that is "
           "not finite.",
           label, found, planned);
    return;
  }
  Report(findings, Severity::kIncomparable,
         "{}: ends after step {} of {} and is {} as complete, but a run must "
         "be whole to be judged. Run it again.",
         label, found, planned,
         log.provenance.complete ? "marked" : "not marked");
}

/// What both runs of a seed must have seen in the same way.
void ReportUnequalProgress(const SeedPair& pair, Findings& findings) {
  const auto& a = pair.baseline->log;
  const auto& b = pair.candidate->log;
  const auto differ = [&](std::string_view what) {
    Report(findings, Severity::kIncomparable,
           "{}: {} differs from {}, but both runs of a seed must see the same "
           "batches. Run both again.",
           Label(*pair.candidate), what, Label(*pair.baseline));
  };
  if (a.provenance.steps_planned != b.provenance.steps_planned) {
    differ("steps_planned");
  }
  const size_t common = std::min(a.steps.step.size(), b.steps.step.size());
  const auto& seen_a = a.steps.tokens_seen;
  const auto& seen_b = b.steps.tokens_seen;
  const size_t tokens = std::min(seen_a.size(), seen_b.size());
  if (seen_a.empty() != seen_b.empty() ||
      !std::equal(seen_a.begin(),
                  seen_a.begin() + static_cast<std::ptrdiff_t>(tokens),
                  seen_b.begin())) {
    differ("tokens_seen");
  }
  if (a.steps.grad_norm.empty() != b.steps.grad_norm.empty()) {
    differ("the presence of grad_norm");
  }
  // Runs that stopped early were reported already; their evaluations are cut.
  const bool whole =
      a.steps.step.size() == common && b.steps.step.size() == common;
  if (whole &&
      (a.eval.step != b.eval.step || a.eval.sequences != b.eval.sequences)) {
    differ("the set of held-out evaluations");
  }
}

Findings CheckSteps(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) ReportSteps(*run, findings);
  if (std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
        return f.severity == Severity::kIncomparable;
      })) {
    return findings;
  }
  for (const SeedPair& pair : pairing.pairs) {
    ReportUnequalProgress(pair, findings);
  }
  return findings;
}

// ---- finite ----------------------------------------------------------------

/// Reports the first value of a column that no healthy run can hold.
/// `positive`: a cross-entropy is above zero.
void ReportBadValues(const Run& run, std::string_view name,
                     std::span<const double> values, bool positive,
                     const std::vector<int64_t>& steps, size_t per_step,
                     Findings& findings) {
  const auto bad = [&](double value) {
    return !std::isfinite(value) || value < 0 || (positive && value == 0);
  };
  const auto first = std::find_if(values.begin(), values.end(), bad);
  if (first == values.end()) return;
  const size_t index = static_cast<size_t>(first - values.begin());
  const int64_t step = steps.at(index / per_step);
  Report(findings, Severity::kBad,
         "{}: {} is {} at step {} ({} of {} values are such), but it must be "
         "finite and {}. The run diverged or computed garbage.",
         Label(run), name,
         std::isnan(*first) ? std::string("NaN") : fmt::format("{}", *first),
         step, std::count_if(values.begin(), values.end(), bad), values.size(),
         positive ? "positive" : "not negative");
}

Findings CheckFinite(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) {
    const auto& steps = run->log.steps;
    const auto& eval = run->log.eval;
    runlog::VisitSteps(
        [&](const runlog::Field& field, const auto& column) {
          if constexpr (std::is_same_v<decltype(column),
                                       const std::vector<double>&>) {
            const bool positive = &column == &steps.loss_nats;
            ReportBadValues(*run, field.name, column, positive, steps.step, 1,
                            findings);
          }
        },
        steps);
    ReportBadValues(*run, "held-out loss_nats", eval.loss_nats, true, eval.step,
                    1, findings);
    ReportBadValues(*run, "per_sequence_loss_nats", eval.per_sequence_loss_nats,
                    true, eval.step, static_cast<size_t>(eval.sequences),
                    findings);
  }
  return findings;
}

// ---- recipe_ran ------------------------------------------------------------

/// True if the resolved recipe names a quantised element format.
bool NamesQuantizedFormat(std::string_view resolved_recipe) {
  const auto formats = formats::AllFormats();
  return std::any_of(
      formats.begin(), formats.end(), [&](const formats::Format* format) {
        return resolved_recipe.find(format->name) != std::string_view::npos;
      });
}

void ReportRecipe(const Run& run, Findings& findings) {
  const auto& provenance = run.log.provenance;
  const auto& counted = run.log.steps.quantized_gemms;
  const int64_t planned = provenance.quantized_gemms_per_step;
  if (counted.empty() || provenance.resolved_recipe.empty()) {
    Report(findings, Severity::kUnverified,
           "{}: no count of quantised GEMMs or no resolved recipe, so nobody "
           "can tell whether recipe {} really ran.",
           Label(run), provenance.recipe);
    return;
  }
  if (planned < 0 || planned > provenance.gemms_per_step) {
    Report(findings, Severity::kBad,
           "{}: recipe {} plans {} quantised GEMMs per step, but there are {} "
           "in all. The counts are damaged.",
           Label(run), provenance.recipe, planned, provenance.gemms_per_step);
  }
  const bool quantizes = NamesQuantizedFormat(provenance.resolved_recipe);
  if (quantizes != (planned > 0)) {
    Report(findings, Severity::kBad,
           "{}: recipe {} plans {} quantised GEMMs per step, but its resolved "
           "text {} a quantised format. The recipe was not applied as written.",
           Label(run), provenance.recipe, planned,
           quantizes ? "names" : "does not name");
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

Findings CheckRecipeRan(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) ReportRecipe(*run, findings);
  return findings;
}

// ---- declared_change -------------------------------------------------------

bool SameRecipe(const Run& a, const Run& b) {
  return a.log.provenance.recipe == b.log.provenance.recipe &&
         a.log.provenance.resolved_recipe == b.log.provenance.resolved_recipe;
}

/// Whether two recipes, whatever their names, come to the same.
bool SameGemms(const Run& a, const Run& b) {
  const std::string& resolved = a.log.provenance.resolved_recipe;
  return !resolved.empty() && resolved == b.log.provenance.resolved_recipe;
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
      (SameRecipe(baseline, candidate) || SameGemms(baseline, candidate))) {
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
    if (a.size() != b.size() || FirstDifferentBits(a, b)) continue;
    Report(findings, Severity::kBad,
           "arms {} and {} are identical: with seed {} every one of {} losses "
           "has the same bits. The declared change did nothing.",
           pairing.baseline_arm, pairing.candidate_arm, pair.seed, a.size());
  }
  return findings;
}

constexpr IntegrityRule kRules[] = {
    {"seeds", "both arms have one independent run per seed", &CheckSeeds},
    {"configuration", "all but the declared change is equal",
     &CheckConfiguration},
    {"steps", "all runs are whole and saw the same batches", &CheckSteps},
    {"finite", "every recorded number is finite", &CheckFinite},
    {"recipe_ran", "each arm ran its recipe in every step", &CheckRecipeRan},
    {"declared_change", "the arms differ by what was declared",
     &CheckDeclaredChange},
};

}  // namespace

std::span<const IntegrityRule> IntegrityRules() { return kRules; }

}  // namespace isoloss::compare
