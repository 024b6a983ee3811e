#include "isoloss/compare/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "isoloss/compare/integrity_rules.h"
#include "isoloss/compare/treatment.h"
#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
bool IsCopy(const runlog::StepColumns& a, const runlog::StepColumns& b) {
  const bool finite = std::ranges::any_of(
      a.loss_nats, [](double x) { return std::isfinite(x); });
  return finite && runlog::EqualBits(a.loss_nats, b.loss_nats);
}

bool ColumnsFit(const runlog::RunLog& log) {
  const auto& eval = log.eval;
  bool fit = log.steps.loss_nats.size() == log.steps.step.size() &&
             eval.loss_nats.size() == eval.step.size() && eval.sequences >= 0;
  const auto fit_or_absent = [&fit](const auto& column, size_t rows) {
    fit = fit && (column.empty() || column.size() == rows);
  };
  for (const auto& column : runlog::ColumnsOf<runlog::StepColumns>()) {
    const size_t count = runlog::View(log.steps).Count(column);
    fit = fit && (count == 0 || count == log.steps.step.size());
  }
  fit_or_absent(eval.per_sequence_loss_nats,
                eval.step.size() * static_cast<size_t>(eval.sequences));
  const auto& parameters = log.parameters;
  const size_t values = parameters.step.size() * parameters.names.size();
  fit_or_absent(parameters.grad_norm, values);
  fit_or_absent(parameters.update_ratio, values);
  return fit;
}

bool Ascend(const std::vector<int64_t>& values, int64_t least, int64_t most) {
  return values.empty() ||
         (values.front() >= least && values.back() <= most &&
          std::adjacent_find(values.begin(), values.end(),
                             std::greater_equal<>()) == values.end());
}

namespace {

// ---- configuration ---------------------------------------------------------

/// A provenance text must be recorded and must be the same in all runs.
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
  const bool foreign = !first.log.provenance.Knows(runlog::Fact::kRecording) ||
                       !other.log.provenance.Knows(runlog::Fact::kRecording);
  if (foreign && (a.empty() || b.empty())) return;
  Report(findings, Severity::kIncomparable,
         "{}: {} is '{}', but {} has '{}' and they must be recorded and equal. "
         "{}",
         Label(other), rule.name, b, Label(first), a, rule.remedy);
}

/// Reports equal initial weights of runs with different perturbations.
void ReportUnperturbed(const SeedPair& pair, Findings& findings) {
  const auto& a = pair.baseline->log.provenance;
  const auto& b = pair.candidate->log.provenance;
  if (!a.initial_weights_digest.empty() && !b.initial_weights_digest.empty() &&
      a.initial_weights_digest != b.initial_weights_digest) {
    return;
  }
  const auto shown = [](const std::string& text) {
    return text.empty() ? "nothing" : text;
  };
  Report(findings, Severity::kIncomparable,
         "{}: initial_weights_digest is '{}', {} has '{}', but they are "
         "perturbed by {} and by {}, so both must be recorded and differ. Run "
         "both arms again.",
         Label(*pair.candidate), b.initial_weights_digest,
         Label(*pair.baseline), a.initial_weights_digest, shown(b.perturbation),
         shown(a.perturbation));
}

void ReportMixedNumerics(std::span<const Run* const> arm, Findings& findings) {
  for (std::string& message : MixedNumerics(arm)) {
    findings.push_back({Severity::kIncomparable, std::move(message)});
  }
}

/// Reports two models of one configuration, because one build makes only one.
void ReportOtherModel(const Run& first, const Run& other, Findings& findings) {
  const auto& a = first.log.provenance;
  const auto& b = other.log.provenance;
  if (a.graph.empty() || b.graph.empty() || a.commit != b.commit ||
      a.tool_version != b.tool_version) {
    return;
  }
  const auto& names = first.log.parameters.names;
  const auto& others = other.log.parameters.names;
  const bool same_names = names.empty() || others.empty() || names == others;
  if (same_names && a.graph.tensors == b.graph.tensors &&
      a.graph.inputs == b.graph.inputs) {
    return;
  }
  Report(findings, Severity::kIncomparable,
         "{}: its {} is not that of {}, but one build makes one model of one "
         "configuration. The file is damaged or was edited: run it again.",
         Label(other),
         same_names ? "/graph or /graph_inputs" : "/parameters/names",
         Label(first));
}

/// Reports a pair that begins with different losses. Before the first update,
/// equal weights give equal losses, except for the formats. With 114 of 120
/// products in 4 bits, the loss of new weights over 32 tokens moved by 7e-4 of
/// it at most. The limit on the loss of step 1 is seven times that. The limit
/// on held-out losses is 140 times that, for weights that were trained before
/// and know more than the frequencies of tokens.
void ReportOtherBeginning(const SeedPair& pair, Question question,
                          Findings& findings) {
  const auto& a = pair.baseline->log;
  const auto& b = pair.candidate->log;
  const std::string& weights = a.provenance.initial_weights_digest;
  if (weights.empty() || weights != b.provenance.initial_weights_digest) return;
  const auto report = [&](Severity severity, const char* what, double one,
                          double other, double most) {
    if (!(std::fabs(other - one) > most * std::fabs(one))) return false;
    Report(findings, severity,
           "{}: its {} is {:.4f}, that of {} is {:.4f}, but both have the "
           "initial weights {} and the same sequences. Look at the forward "
           "pass and at the data.",
           Label(*pair.candidate), what, other, Label(*pair.baseline), one,
           weights);
    return true;
  };
  const auto has_first = [](const runlog::EvalColumns& eval) {
    return !eval.step.empty() && eval.step[0] == 0 && !eval.loss_nats.empty();
  };
  if (has_first(a.eval) && has_first(b.eval) &&
      report(Severity::kBad, "held-out loss before step 1", a.eval.loss_nats[0],
             b.eval.loss_nats[0], 0.1)) {
    return;
  }
  const auto& of_a = a.steps;
  const auto& of_b = b.steps;
  const bool one_batch = !of_a.batch_digest.empty() &&
                         !of_b.batch_digest.empty() &&
                         of_a.batch_digest[0] == of_b.batch_digest[0];
  if (question != Question::kPrecision || !pair.Knows(runlog::Fact::kBatches) ||
      !one_batch || of_a.loss_nats.empty() || of_b.loss_nats.empty() ||
      !(of_a.loss_nats[0] > a.provenance.unigram_entropy_nats)) {
    return;
  }
  report(Severity::kUnverified, "loss of step 1", of_a.loss_nats[0],
         of_b.loss_nats[0], 0.005);
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
  for (const Run* run : pairing.All()) {
    ReportOtherModel(first, *run, findings);
  }
  ReportMixedNumerics(pairing.baseline, findings);
  ReportMixedNumerics(pairing.candidate, findings);
  for (const SeedPair& pair : pairing.pairs) {
    if (SamePerturbation(*pair.baseline, *pair.candidate)) {
      ReportDisagreement(*pair.baseline, *pair.candidate, kInitialWeights,
                         findings);
    } else {
      ReportUnperturbed(pair, findings);
    }
    ReportOtherBeginning(pair, question, findings);
  }
  return findings;
}

// ---- steps -----------------------------------------------------------------

/// Describes where `step` is not 1, 2, 3, ... first: "step 7 is missing".
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
  if (!log.provenance.Knows(runlog::Fact::kEveryStep))
    return ReportForeignSteps(run, findings);
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
           "{}: columns of /steps, /eval or /parameters differ in length, but "
           "each must have one value per step ({}). The log is damaged: run it "
           "again.",
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
  if (!Ascend(log.steps.tokens_seen, 1) || !Ascend(log.eval.step, 0, planned)) {
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

/// Reports what both runs of a seed must have seen in the same way.
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
  if (!pair.Knows(runlog::Fact::kBatches)) ReportUnlikeCurves(pair, findings);
  const size_t common = std::min(a.steps.step.size(), b.steps.step.size());
  const auto same_start = [](const auto& x, const auto& y) {
    const auto rows = static_cast<std::ptrdiff_t>(std::min(x.size(), y.size()));
    return std::equal(x.begin(), x.begin() + rows, y.begin());
  };
  if (a.steps.tokens_seen.empty() != b.steps.tokens_seen.empty() ||
      !same_start(a.steps.tokens_seen, b.steps.tokens_seen)) {
    differ("tokens_seen");
  }
  // Schema versions before 4 have no batch digests.
  if (!same_start(a.steps.batch_digest, b.steps.batch_digest)) {
    differ("batch_digest");
  }
  if (a.steps.grad_norm.empty() != b.steps.grad_norm.empty()) {
    differ("the presence of grad_norm");
  }
  // Runs that stopped early were reported before; their evaluations are cut.
  const bool whole =
      a.steps.step.size() == common && b.steps.step.size() == common;
  if (whole &&
      (a.eval.step != b.eval.step || a.eval.sequences != b.eval.sequences)) {
    differ("the set of held-out evaluations");
  }
}

void ReportAborted(const Run& run, Findings& findings) {
  const auto& events = run.log.events;
  if (!run.log.provenance.complete || events.empty() ||
      events.back().kind != "abort") {
    return;
  }
  Report(findings, Severity::kIncomparable,
         "{}: is marked as complete, but its last event is `abort`. The log "
         "was edited: run it again.",
         Label(run));
}

Findings CheckSteps(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) {
    ReportSteps(*run, findings);
    ReportAborted(*run, findings);
  }
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

// ---- domains ---------------------------------------------------------------

Findings CheckDomains(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) {
    const auto violations =
        run->violations ? *run->violations : runlog::CheckDomains(run->log);
    for (const runlog::Violation& violation : violations) {
      Report(findings,
             violation.fault == runlog::Fault::kRun ? Severity::kBad
                                                    : Severity::kIncomparable,
             "{}: {}", Label(*run), violation.message);
    }
    if (!run->log.provenance.Knows(runlog::Fact::kRecording))
      ReportLoads(*run, findings);
  }
  return findings;
}

// ---- what other programs' logs tell ----------------------------------------

bool AllRuns(const Pairing& pairing, bool (*tells)(const runlog::RunLog&)) {
  return std::ranges::all_of(pairing.All(),
                             [&](const Run* run) { return tells(run->log); });
}

bool IsConfigurationTold(const Pairing& pairing, Question) {
  return AllRuns(pairing,
                 [](const runlog::RunLog& log) {
                   return !log.provenance.config_digest.empty();
                 }) ||
         AllRuns(pairing, [](const runlog::RunLog& log) {
           return !log.provenance.corpus_digest.empty();
         });
}

/// A regression declares no change, and its logs may be equal.
bool IsChangeDeclared(const Pairing&, Question question) {
  return question == Question::kPrecision;
}

bool AreRatesTold(const Pairing& pairing, Question) {
  return AllRuns(
      pairing, [](const runlog::RunLog& log) { return !log.steps.lr.empty(); });
}

bool IsMovementTold(const Pairing& pairing, Question) {
  return AllRuns(pairing, [](const runlog::RunLog& log) {
    return !log.steps.lr.empty() || !log.steps.grad_norm.empty() ||
           !log.provenance.final_weights_digest.empty();
  });
}

bool IsRecipeTold(const Pairing& pairing, Question) {
  return AllRuns(pairing, [](const runlog::RunLog& log) {
    return !log.provenance.graph.empty() && !log.steps.quantized_gemms.empty();
  });
}

constexpr IntegrityRule kRules[] = {
    {"seeds", "both arms have one independent run per seed",
     "both arms have one run per seed", &CheckSeeds},
    {"configuration", "all but the declared change is equal",
     "nothing that the logs tell of the configuration differs",
     &CheckConfiguration, &IsConfigurationTold},
    {"steps", "all runs are whole and saw the same batches",
     "all runs go to the same step, and have the same steps", &CheckSteps},
    {"domains", "every column is there, every value in its domain",
     "every value is in its domain", &CheckDomains},
    {"schedule", "each run had the learning rates of its schedule",
     "no two learning rates of a step differ, as far as digits go",
     &CheckSchedule, &AreRatesTold},
    {"training", "each run's weights moved",
     "no log says that its run's weights stood still", &CheckTraining,
     &IsMovementTold},
    {"recipe_ran", "each arm ran its recipe in every step",
     "each arm ran its recipe in every step", &CheckRecipeRan, &IsRecipeTold},
    {"declared_change", "the arms differ by what was declared",
     "the runs are not the same by what their logs tell", &CheckDeclaredChange,
     &IsChangeDeclared},
};

}  // namespace

std::span<const IntegrityRule> IntegrityRules() { return kRules; }

std::vector<std::string> MixedNumerics(std::span<const Run* const> arm) {
  std::map<std::string, size_t> counts;
  const Run* usual = nullptr;
  for (const Run* run : arm) {
    const std::string& digest = run->log.provenance.numerics_digest;
    if (digest.empty()) continue;
    const size_t count = ++counts[digest];
    // If two digests are equally frequent, the one that comes first counts.
    if (usual == nullptr ||
        count > counts[usual->log.provenance.numerics_digest]) {
      usual = run;
    }
  }
  std::vector<std::string> messages;
  if (usual == nullptr || counts.size() < 2) return messages;
  const runlog::Provenance& a = usual->log.provenance;
  for (const Run* run : arm) {
    const runlog::Provenance& b = run->log.provenance;
    if (b.numerics_digest.empty() || b.numerics_digest == a.numerics_digest) {
      continue;
    }
    messages.push_back(fmt::format(
        "{}: its program computes otherwise (numerics_digest {}, {}, commit "
        "{}, kernels {}) than that of {} ({}, {}, commit {}, kernels {}), but "
        "all runs of arm {} must be made by one arithmetic. Make it again with "
        "the build and on a machine of the others.",
        Label(*run), b.numerics_digest, b.tool_version, b.commit, b.cpu_target,
        Label(*usual), a.numerics_digest, a.tool_version, a.commit,
        a.cpu_target, b.arm));
  }
  return messages;
}

}  // namespace isoloss::compare
