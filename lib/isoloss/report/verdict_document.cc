#include "isoloss/report/verdict_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/report/controls.h"
#include "isoloss/report/json.h"
#include "isoloss/report/precision_document.h"
#include "isoloss/report/sentences.h"
#include "isoloss/report/verdict_members.h"
#include "isoloss/report/verdict_result.h"

namespace isoloss::report {
namespace {

using compare::ArmSummary;
using document::Document;
using document::Line;
using document::Title;
using document::Tone;
using gate::Check;
using gate::Judgement;
using gate::Outcome;

Tone ToneOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return Tone::kGood;
    case Outcome::kInconclusive:
      return Tone::kDoubtful;
    case Outcome::kFail:
    case Outcome::kInvalid:
      break;
  }
  return Tone::kBad;
}

// ---- header ----------------------------------------------------------------

std::string SeedList(const ArmSummary& arm) {
  std::string list;
  for (const auto& run : arm.runs) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", run.seed);
  }
  return list.empty() ? "none" : list;
}

std::string StepsText(const Judgement& judgement) {
  std::string steps = judgement.origin.empty()
                          ? fmt::to_string(judgement.steps_planned)
                          : judgement.compared_steps;
  if (judgement.tokens_per_step > 0) {
    steps += fmt::format(" of {} tokens", judgement.tokens_per_step);
  }
  if (judgement.final_window.has_value()) {
    steps += fmt::format(", final window from {} to {}",
                         judgement.final_window->first_step,
                         judgement.final_window->last_step);
  }
  return steps;
}

void AddHeader(const Judgement& judgement, Document& document) {
  document.Add(
      Title{fmt::format("{}{}{} against {}", judgement.experiment,
                        judgement.experiment.empty() ? "" : ": ",
                        judgement.candidate.arm, judgement.baseline.arm)});
  document.AddField("question",
                    std::string(gate::QuestionName(judgement.policy.question)));
  document.AddField("steps", StepsText(judgement));
  if (!judgement.rate_note.empty()) {
    document.AddField("rate", judgement.rate_note);
  }
  const std::string seeds = SeedList(judgement.baseline);
  const std::string other = SeedList(judgement.candidate);
  document.AddField("seeds", seeds == other
                                 ? seeds
                                 : fmt::format("{} in {}, {} in {}", seeds,
                                               judgement.baseline.arm, other,
                                               judgement.candidate.arm));
  if (judgement.looks) document.AddField("looks", judgement.looks->Sentence());
  if (judgement.origin.empty()) {
    document.AddField("model",
                      fmt::format("{} parameters", judgement.parameters));
  }
  document.AddField("corpus", judgement.corpus);
  for (const std::string& item : judgement.evidence) {
    document.AddField("evidence", item);
  }
  document.AddField(
      "policy", fmt::format("digest {}", gate::PolicyDigest(judgement.policy)));
  document.AddField(
      "program",
      judgement.origin.empty()
          ? fmt::format("{}, commit {}", judgement.tool_version,
                        judgement.commit)
          : fmt::format("another one, by logs of {}", judgement.origin));
}

// ---- arms ------------------------------------------------------------------

struct ArmRow {
  const char* name;
  const char* unit;
  std::function<std::string(const ArmSummary&)> cell;
};

std::string Number(const std::optional<double>& value, int decimals) {
  if (!value.has_value()) return "-";
  if (!std::isfinite(*value)) return std::isnan(*value) ? "NaN" : "Inf";
  return fmt::format("{:.{}f}", *value, decimals);
}

std::vector<ArmRow> TableRows() {
  return {
      {"", "", [](const ArmSummary& a) { return a.arm; }},
      {"recipe", "", [](const ArmSummary& a) { return a.recipe; }},
      {"loss, final window", "nats",
       [](const ArmSummary& a) { return Number(a.final_loss_nats, 4); }},
      {"held-out loss, last", "nats",
       [](const ArmSummary& a) { return Number(a.held_out_loss_nats, 4); }},
      {"gradient norm, final window", "",
       [](const ArmSummary& a) { return Number(a.final_grad_norm, 4); }},
      {"busiest expert / mean", "x",
       [](const ArmSummary& a) {
         return Number(a.final_load_max_over_mean, 2);
       }},
      {"experts without tokens", "",
       [](const ArmSummary& a) { return Number(a.final_dead_experts, 2); }},
      {"speed of one run", "steps/s",
       [](const ArmSummary& a) { return Number(a.steps_per_second, 2); }},
      {"quantised GEMMs per step", "",
       [](const ArmSummary& a) {
         return fmt::format("{} of {}", a.quantized_gemms_per_step,
                            a.gemms_per_step);
       }},
  };
}

void AddArms(const Judgement& judgement, Document& document) {
  document::Table table{.columns = {{.label = "quantity", .is_text = true},
                                    {.label = "baseline"},
                                    {.label = "candidate"}},
                        .indent = 2,
                        .gap = 2,
                        .has_head = false};
  const auto is_unknown = [](const std::string& cell) {
    return cell.empty() || cell == "-" || cell == "0 of 0";
  };
  for (const ArmRow& row : TableRows()) {
    const std::string baseline = row.cell(judgement.baseline);
    const std::string candidate = row.cell(judgement.candidate);
    // The logs of foreign programs do not tell everything.
    if (!judgement.origin.empty() && is_unknown(baseline) &&
        is_unknown(candidate)) {
      continue;
    }
    Document& cells = table.rows.emplace_back();
    cells.AddField("quantity", fmt::format("{:<27} {:>7}", row.name, row.unit));
    cells.AddField("baseline", baseline);
    cells.AddField("candidate", candidate);
  }
  document.Say("");
  document.Add(std::move(table));
}

/// Says how good the losses are in absolute terms.
void AddEntropies(const Judgement& judgement, Document& document) {
  std::vector<std::string> lines;
  for (const ArmSummary* arm : {&judgement.baseline, &judgement.candidate}) {
    if (arm->percent_below_unigram.has_value()) {
      const double percent = *arm->percent_below_unigram;
      lines.push_back(fmt::format(
          "{} ends {:.1f} % {} the corpus' unigram entropy of {:.4f} nats",
          arm->arm, std::fabs(percent), percent < 0 ? "above" : "below",
          judgement.unigram_entropy_nats));
    }
    if (arm->percent_above_floor.has_value()) {
      const double percent = *arm->percent_above_floor;
      lines.push_back(fmt::format(
          "{} ends {:.1f} % {} the source's entropy rate of {:.4f} nats",
          arm->arm, std::fabs(percent), percent < 0 ? "below" : "above",
          judgement.entropy_floor_nats));
    }
  }
  if (!lines.empty()) document.Say("");
  for (std::string& line : lines) {
    document.Add(Line{.text = std::move(line), .indent = 2, .hang = 4});
  }
}

void AddCharts(const Judgement& judgement, Document& document) {
  const auto& curves = judgement.curves;
  if (curves.step.empty()) return;
  document::Chart loss;
  const size_t seeds = judgement.baseline.runs.size();
  loss.title = fmt::format("Loss in nats, mean over {} seed{}", seeds,
                           seeds == 1 ? "" : "s");
  loss.step = curves.step;
  loss.curves = {{curves.baseline_nats, false, judgement.baseline.arm},
                 {curves.candidate_nats, true, judgement.candidate.arm}};
  loss.rows = 12;
  if (judgement.final_window.has_value()) {
    loss.marked_step = judgement.final_window->first_step;
  }
  document.Add(std::move(loss));
  document.Add(DifferenceChart(judgement));
}

// ---- measures and checks ---------------------------------------------------

Document MeasureDocument(const gate::Measure& measure) {
  Document document;
  document.Put("name", measure.name);
  document.Put("value", measure.value);
  document.Put("unit", measure.unit);
  document.Put("evidence", measure.evidence);
  std::string label =
      fmt::format("  {:<18} {:>10} {:<5} ", measure.name,
                  fmt::format("{:.4g}", measure.value), measure.unit);
  const size_t hang = label.size();
  document.Add(
      Line{.text = measure.evidence, .hang = hang, .label = std::move(label)});
  return document;
}

/// This text replaces the outcome of a check that a different level made
/// unnecessary.
constexpr std::string_view kNotNeeded = "not needed";

/// Writes OUTCOME level name: statement (evidence), and what to do on a
/// separate line. Outcomes are padded to `outcome_width`.
Document CheckDocument(const Check& check, size_t outcome_width) {
  Document document = CheckMembers(check);
  const std::string_view word =
      check.gates ? gate::OutcomeName(check.outcome) : kNotNeeded;
  std::string label = fmt::format("  {} {:<15}  ", check.level, check.name);
  const size_t hang = 2 + outcome_width + label.size();
  std::string statement = StatementOf(check);
  if (!check.evidence.empty()) {
    statement += fmt::format(" ({})", check.evidence);
  }
  document.Add(Line{.text = std::move(statement),
                    .indent = 2,
                    .hang = hang,
                    .lead = fmt::format("{:<{}}", word, outcome_width),
                    .tone = check.gates ? ToneOf(check.outcome) : Tone::kPlain,
                    .label = std::move(label)});
  if (!check.next.empty()) {
    document.Add(Line{.text = fmt::format("next: {}", check.next),
                      .indent = static_cast<int>(hang),
                      .hang = hang});
  }
  return document;
}

void AddControls(const Judgement& judgement, Document& document) {
  if (judgement.controls) {
    document.Add(Title{fmt::format(
        "Control and null arms, {:g} % intervals over seeds",
        100 - 200 * (judgement.looks
                         ? judgement.looks->NominalAlpha(judgement.policy)
                         : judgement.policy.Alpha()))});
  }
  document.PutObject("controls", ControlsDocument(judgement));
}

void AddChecks(const Judgement& judgement, Document& document) {
  size_t width = 0;
  for (const Check& check : judgement.checks) {
    width =
        std::max(width, check.gates ? gate::OutcomeName(check.outcome).size()
                                    : kNotNeeded.size());
  }
  document.Add(Title{"Checks"});
  document.PutEach("checks", judgement.checks, [&](const Check& check) {
    return CheckDocument(check, width);
  });
}

/// Lists the tensors of level L3 that stand out; they are not a gate.
void AddTensors(const Judgement& judgement, Document& document) {
  constexpr size_t kShown = 10;
  size_t shown = 0;
  if (!judgement.tensors.empty()) document.Add(Title{"Tensors to look at"});
  document.PutEach(
      "tensors", judgement.tensors, [&](const gate::TensorFinding& finding) {
        Document of = TensorMembers(finding);
        if (++shown > kShown) return of;
        of.Add(Line{
            .text = fmt::format("{} at step {}: {:+.3g} sd, adjusted p {:.2g}",
                                finding.statistic, finding.step, finding.z,
                                finding.adjusted_p),
            .indent = 2,
            .hang = 4});
        return of;
      });
  if (shown > kShown) {
    document.Say(fmt::format("and {} more in verdict.json", shown - kShown), 2);
  }
}

/// Adds rules that users of different projects know.
void AddPeers(const Judgement& judgement, Document& document) {
  if (judgement.origin.empty()) return;
  document.Put("origin", judgement.origin);
  if (!judgement.peers.empty()) {
    document.Add(Title{"Rules of other projects, which decide nothing here"});
  }
  document.PutEach("peers", judgement.peers, [](const gate::PeerOpinion& peer) {
    Document of = PeerMembers(peer);
    of.Add(Line{
        .text = fmt::format("{} accepts {} of {}: {} ({})", peer.name,
                            peer.accepted, peer.judged, peer.rule, peer.source),
        .indent = 2,
        .hang = 4});
    return of;
  });
}

void AddWarnings(const Judgement& judgement, Document& document) {
  document.Put("warnings", judgement.warnings);
  if (judgement.warnings.empty()) return;
  document.Add(Title{"Warnings"});
  for (const std::string& warning : judgement.warnings) {
    document.Add(Line{.text = warning,
                      .indent = 2,
                      .hang = 4,
                      .lead = "warning:",
                      .tone = Tone::kDoubtful,
                      .label = " "});
  }
}

/// Writes "PASS  mxfp8 against bf16: ... (exit code 0)" on one line, however
/// long, because scripts look for it.
void AddEnd(const Judgement& judgement, Document& document) {
  document.Say("");
  document.Add(
      Line{.text = fmt::format("  {} against {}: {} (exit code {})",
                               judgement.candidate.arm, judgement.baseline.arm,
                               VerdictReasons(judgement),
                               gate::ExitCode(judgement.outcome)),
           .lead = std::string(gate::OutcomeName(judgement.outcome)),
           .tone = ToneOf(judgement.outcome)});
}

}  // namespace

document::Document DocumentOf(const Judgement& full) {
  const Judgement judgement = WithSides(full);
  Document document = VerdictMembers(full);
  AddHeader(judgement, document);
  AddArms(judgement, document);
  AddEntropies(judgement, document);
  AddCharts(judgement, document);
  if (!judgement.measures.empty()) {
    document.Add(Title{"Reported, not gated"});
  }
  document.PutEach("measures", judgement.measures, MeasureDocument);
  AddControls(judgement, document);
  AddChecks(judgement, document);
  AddPeers(judgement, document);
  AddTensors(judgement, document);
  if (judgement.precision) {
    document.PutObject("precision", PrecisionDocument(judgement));
  } else {
    document.Put("precision", {});
  }
  AddWarnings(judgement, document);
  AddEnd(judgement, document);
  return document;
}

}  // namespace isoloss::report
