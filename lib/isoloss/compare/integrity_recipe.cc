// Checks for level L0 what was computed; see integrity.cc.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/compare/integrity_rules.h"
#include "isoloss/compare/treatment.h"
#include "isoloss/runlog/recipe_phases.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

// ---- recipe_ran ------------------------------------------------------------

using Operands = std::pair<std::string, std::string>;

/// Converts "again e4m3" of a recipe's text to "e4m3 again" of /recipe.
std::string OperandOf(std::string_view text) {
  constexpr std::string_view kAgain = "again ";
  const bool again = text.starts_with(kAgain);
  if (again) text.remove_prefix(kAgain.size());
  std::string operand(text == "bf16" || text == "fp32" ? "" : text);
  return again ? operand + " again" : operand;
}

/// Returns the operands of a product in a line of a recipe's text.
std::optional<Operands> OperandsOf(std::string_view line,
                                   std::string_view product) {
  const std::string key = fmt::format("  {} ", product);
  const size_t begin = line.find(key);
  if (begin == line.npos) return std::nullopt;
  line.remove_prefix(begin + key.size());
  line = line.substr(0, line.find("  "));
  const size_t right = line.find(" x ");
  if (right == line.npos) return std::nullopt;
  const size_t sums = std::min(line.find(" in ", right), line.size());
  return Operands{
      OperandOf(line.substr(0, right)) + std::string(line.substr(sums)),
      OperandOf(line.substr(right + 3, sums - right - 3))};
}

/// Returns whether a log that must resolve its recipe names no GEMM in it.
bool NamesNoGemm(const runlog::RunLog& log) {
  const runlog::Provenance& provenance = log.provenance;
  if (log.schema_version < runlog::kFullTextVersion ||
      !provenance.Knows(runlog::Fact::kExperiment)) {
    return false;
  }
  for (std::string_view text = provenance.resolved_recipe; !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (OperandsOf(line, "wgrad")) return false;
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return true;
}

/// Reports sites to which /recipe gives other operands than the recipe's text
/// in one phase.
void ReportSites(const Run& run, const runlog::RecipeColumns& recipe,
                 std::string_view sites, Findings& findings) {
  std::map<std::string_view, std::string_view> lines;
  for (std::string_view text = sites; !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    lines.emplace(line.substr(0, line.find("  ")), line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  for (size_t i = 0; i < recipe.site.size(); ++i) {
    const auto line = lines.find(recipe.site[i]);
    if (line == lines.end()) continue;
    // The text says once for all sites that a gradient is rounded.
    std::string dy = recipe.wgrad_dy[i];
    if (dy.ends_with(runlog::kRoundedGradient)) {
      dy.resize(dy.size() - std::string_view(runlog::kRoundedGradient).size());
    }
    const std::pair<const char*, Operands> products[] = {
        {"fprop", {recipe.fprop_x[i], recipe.fprop_w[i]}},
        {"dgrad", {recipe.dgrad_dy[i], recipe.dgrad_w[i]}},
        {"wgrad", {dy, recipe.wgrad_x[i]}}};
    // A text in another form can't be compared.
    if (!OperandsOf(line->second, "wgrad")) continue;
    for (const auto& [product, found] : products) {
      const auto asked = OperandsOf(line->second, product);
      if (!asked || *asked == found) continue;
      Report(findings, Severity::kBad,
             "{}: /recipe gives `{}` and `{}` to {} of {}, but recipe {} gives "
             "`{}` and `{}`. The recipe was not applied as written.",
             Label(run), found.first, found.second, product, recipe.site[i],
             run.log.provenance.recipe, asked->first, asked->second);
      return;
    }
  }
}

/// Reports a text that does not tell the phases of /recipe and /recipe_phases.
void ReportPhases(const Run& run, Findings& findings) {
  const runlog::Provenance& provenance = run.log.provenance;
  const auto found = runlog::PhasesOf(provenance.graph);
  const auto told = runlog::PhaseTexts(provenance.resolved_recipe);
  for (size_t i = 0; i < std::max(found.size(), told.size()); ++i) {
    const int64_t step = i < found.size() ? found[i].first_step : 0;
    const int64_t asked = i < told.size() ? told[i].first_step : 0;
    if (step != asked) {
      Report(findings, Severity::kBad,
             "{}: /recipe_phases has phase {} from step {} on, but "
             "resolved_recipe from step {} (0: there is none). The recipe was "
             "not applied as written.",
             Label(run), i + 1, step, asked);
      return;
    }
    ReportSites(run, found[i].recipe, told[i].sites, findings);
  }
}

/// Reports the first step with more or fewer quantised GEMMs than its phase
/// asks for.
void ReportCounts(const Run& run, Findings& findings) {
  const runlog::Provenance& provenance = run.log.provenance;
  const auto phases = runlog::PhasesOf(provenance.graph);
  std::vector<int64_t> planned = {provenance.quantized_gemms_per_step};
  for (size_t i = 1; i < phases.size(); ++i) {
    planned.push_back(CountGemms(phases[i].recipe).quantized);
  }
  const auto& steps = run.log.steps;
  for (size_t i = 0; i < steps.quantized_gemms.size(); ++i) {
    const size_t phase = runlog::PhaseAt(phases, steps.step[i]);
    if (steps.quantized_gemms[i] == planned[phase]) continue;
    Report(
        findings, Severity::kBad,
        "{}: {} quantised GEMMs ran in step {}, but recipe {} asks for {}{}. "
        "The recipe did not run as written.",
        Label(run), steps.quantized_gemms[i], steps.step[i], provenance.recipe,
        planned[phase],
        phases.size() == 1
            ? ""
            : fmt::format(" from step {} on", phases[phase].first_step));
    return;
  }
}

void ReportRecipe(const Run& run, Findings& findings) {
  const auto& provenance = run.log.provenance;
  const int64_t planned = provenance.quantized_gemms_per_step;
  if (!provenance.Knows(runlog::Fact::kRecipe)) return;
  if (NamesNoGemm(run.log)) {
    Report(findings, Severity::kIncomparable,
           "{}: attribute resolved_recipe names no GEMM, but it must say what "
           "recipe {} gives to each. The file is damaged or was edited: run it "
           "again.",
           Label(run), provenance.recipe);
  }
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
  } else {
    ReportPhases(run, findings);
  }
  ReportCounts(run, findings);
}

}  // namespace

Findings CheckRecipeRan(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) ReportRecipe(*run, findings);
  return findings;
}

namespace {

// ---- declared_change -------------------------------------------------------

/// Reports an arm that has several recipes, exchanges or perturbations.
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

/// Returns how far two records of one loss may be apart; 0 if both logs have
/// the same format and digits.
double RecordsApart(const SeedPair& pair, double loss) {
  constexpr double kFp32Unit = 0x1p-23;  // of formats without decimal digits
  const runlog::Origin& a = pair.baseline->log.provenance.origin;
  const runlog::Origin& b = pair.candidate->log.provenance.origin;
  if (a.format == b.format && a.loss_half_unit == b.loss_half_unit) return 0;
  return a.loss_half_unit + b.loss_half_unit + kFp32Unit * std::fabs(loss);
}

/// Returns the number of steps of a pair with equal losses. Losses count if
/// they are so fine that runs of two precisions differ at most steps. Two runs
/// that part by 0.01 % of the loss, ten times as far as rounding parts them at
/// step 1, have equal digits at 4 of 10 steps.
size_t EqualSteps(const SeedPair& pair) {
  constexpr double kFine = 5e-5;  // half a unit, of the loss
  const runlog::RunLog& a = pair.baseline->log;
  const runlog::RunLog& b = pair.candidate->log;
  const double unit = std::max({a.provenance.origin.loss_half_unit,
                                b.provenance.origin.loss_half_unit,
                                a.told.loss_step / 2, b.told.loss_step / 2});
  const auto rows = runlog::MatchRows(a.steps.step, b.steps.step);
  return static_cast<size_t>(
      std::ranges::count_if(rows, [&](const runlog::SharedRow& at) {
        const double loss = a.steps.loss_nats[at.a];
        return std::fabs(loss - b.steps.loss_nats[at.b]) <=
                   RecordsApart(pair, loss) &&
               unit <= kFine * loss;
      }));
}

bool AreOneRun(const SeedPair& pair) {
  const auto& a = pair.baseline->log.steps;
  const auto& b = pair.candidate->log.steps;
  return runlog::EqualBits(a.loss_nats, b.loss_nats) ||
         (a.step == b.step && EqualSteps(pair) == a.step.size());
}

/// Reports arms that are one run because the change did nothing. It may begin
/// late, but most of the run must have it.
void ReportMostlyEqual(const Pairing& pairing, Findings& findings) {
  for (const SeedPair& pair : pairing.pairs) {
    const size_t steps = pair.baseline->log.steps.step.size();
    const size_t equal = EqualSteps(pair);
    if (2 * equal <= steps) continue;
    Report(findings, Severity::kUnverified,
           "{}: its loss is that of {} in all digits at {} of {} steps, so the "
           "declared change did nothing there. Give runs in which it acts for "
           "more than half of the steps.",
           Label(*pair.candidate), Label(*pair.baseline), equal, steps);
    return;
  }
}

/// Reports a log that is given as both runs, which says nothing.
void ReportOneFile(const Pairing& pairing, Question question,
                   Findings& findings) {
  for (const SeedPair& pair : pairing.pairs) {
    if (SamenessOf(*pair.baseline, *pair.candidate) != Sameness::kFile) {
      continue;
    }
    Report(findings, Severity::kUnverified,
           "{} is given both as {}, and a file is always equal to itself. Give "
           "the log of another run.",
           Label(*pair.candidate),
           question == Question::kRegression
               ? "the new log and as the approved one"
               : "a run of the baseline and as one of the candidate");
  }
}

/// Reports parts of a run of one arm that are also in a run of the second arm.
void ReportMixedLogs(const Pairing& pairing, Findings& findings) {
  for (const SeedPair& pair : pairing.pairs) {
    if (ReportEqualParts(*pair.baseline, *pair.candidate, findings)) return;
  }
  for (const SeedPair& one : pairing.pairs) {
    for (const SeedPair& other : pairing.pairs) {
      if (one.seed != other.seed &&
          ReportEqualParts(*one.baseline, *other.candidate, findings)) {
        return;
      }
    }
  }
  ReportEqualHeldOut(pairing, findings);
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
    ReportOneFile(pairing, question, findings);
    return findings;
  }
  ReportOneFile(pairing, question, findings);
  if (!findings.empty()) return findings;
  // It is not known whether another program treated two runs in the same way.
  if (pairing.Knows(runlog::Fact::kExperiment) &&
      SameTreatment(baseline, candidate) &&
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
    if (AreOneRun(pair)) seeds.push_back(pair.seed);
  }
  if (!seeds.empty()) {
    Report(findings, Severity::kBad,
           "arms {} and {} are identical: every loss is the same with seed{} "
           "{}. The declared change did nothing.",
           pairing.baseline_arm, pairing.candidate_arm,
           seeds.size() == 1 ? "" : "s", fmt::join(seeds, ", "));
  } else {
    ReportMostlyEqual(pairing, findings);
  }
  if (findings.empty()) ReportMixedLogs(pairing, findings);
  return findings;
}

}  // namespace isoloss::compare
