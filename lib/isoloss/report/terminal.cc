#include "isoloss/report/terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string_view>

#include "isoloss/document/text_layout.h"
#include "isoloss/report/controls.h"
#include "isoloss/report/precision_text.h"
#include "isoloss/report/reading.h"

namespace isoloss::report {
namespace {

using document::Chart;
using document::DrawChart;
using document::FieldLine;
using document::Heading;
using document::kBlue;
using document::kBold;
using document::kGreen;
using document::kRed;
using document::kYellow;
using document::Paint;
using document::TextStyle;
using document::Wrap;

using compare::ArmSummary;
using gate::Check;
using gate::Judgement;
using gate::Outcome;

// ---- header ----------------------------------------------------------------

std::string SeedList(const ArmSummary& arm) {
  std::string list;
  for (const auto& run : arm.runs) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", run.seed);
  }
  return list.empty() ? "none" : list;
}

std::string Header(const Judgement& judgement, const TextStyle& style) {
  std::string text =
      Paint(fmt::format("{}{}{} against {}", judgement.experiment,
                        judgement.experiment.empty() ? "" : ": ",
                        judgement.candidate.arm, judgement.baseline.arm),
            kBold, style);
  text += "\n";
  text += FieldLine("question",
                    std::string(gate::QuestionName(judgement.policy.question)),
                    style);
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
  text += FieldLine("steps", steps, style);
  const std::string seeds = SeedList(judgement.baseline);
  const std::string other = SeedList(judgement.candidate);
  text += FieldLine("seeds",
                    seeds == other ? seeds
                                   : fmt::format("{} in {}, {} in {}", seeds,
                                                 judgement.baseline.arm, other,
                                                 judgement.candidate.arm),
                    style);
  if (judgement.looks.has_value()) {
    text += FieldLine("looks", judgement.looks->Sentence(), style);
  }
  if (judgement.origin.empty()) {
    text += FieldLine(
        "model", fmt::format("{} parameters", judgement.parameters), style);
  }
  text += FieldLine("corpus", judgement.corpus, style);
  for (const std::string& item : judgement.evidence) {
    text += FieldLine("evidence", item, style);
  }
  text += FieldLine(
      "policy", fmt::format("digest {}", gate::PolicyDigest(judgement.policy)),
      style);
  text += FieldLine(
      "program",
      judgement.origin.empty()
          ? fmt::format("{}, commit {}", judgement.tool_version,
                        judgement.commit)
          : fmt::format("another one, by logs of {}", judgement.origin),
      style);
  return text;
}

// ---- table -----------------------------------------------------------------

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

std::string Table(const Judgement& judgement) {
  const ArmSummary* arms[] = {&judgement.baseline, &judgement.candidate};
  const std::vector<ArmRow> rows = TableRows();
  size_t width[2] = {0, 0};
  for (const ArmRow& row : rows) {
    for (int i = 0; i < 2; ++i) {
      width[i] = std::max(width[i], row.cell(*arms[i]).size());
    }
  }
  std::string text;
  const auto is_unknown = [](const std::string& cell) {
    return cell.empty() || cell == "-" || cell == "0 of 0";
  };
  for (const ArmRow& row : rows) {
    // Of what other programs' logs do not tell.
    if (!judgement.origin.empty() && is_unknown(row.cell(*arms[0])) &&
        is_unknown(row.cell(*arms[1]))) {
      continue;
    }
    std::string line = fmt::format("  {:<27} {:>7}", row.name, row.unit);
    for (int i = 0; i < 2; ++i) {
      line += fmt::format("  {:>{}}", row.cell(*arms[i]), width[i]);
    }
    text += line + "\n";
  }
  return text;
}

/// How good the losses are in absolute terms.
std::string EntropyLines(const Judgement& judgement, const TextStyle& style) {
  std::string text;
  const auto append = [&](const std::string& line) {
    text += fmt::format("  {}\n", Wrap(line, 2, 4, style));
  };
  for (const ArmSummary* arm : {&judgement.baseline, &judgement.candidate}) {
    if (arm->percent_below_unigram.has_value()) {
      const double percent = *arm->percent_below_unigram;
      append(fmt::format(
          "{} ends {:.1f} % {} the corpus' unigram entropy of {:.4f} nats",
          arm->arm, std::fabs(percent), percent < 0 ? "above" : "below",
          judgement.unigram_entropy_nats));
    }
    if (arm->percent_above_floor.has_value()) {
      const double percent = *arm->percent_above_floor;
      append(fmt::format(
          "{} ends {:.1f} % {} the source's entropy rate of {:.4f} nats",
          arm->arm, std::fabs(percent), percent < 0 ? "below" : "above",
          judgement.entropy_floor_nats));
    }
  }
  return text.empty() ? text : fmt::format("\n{}", text);
}

// ---- charts ----------------------------------------------------------------

std::string Legend(const Judgement& judgement, const TextStyle& style) {
  const std::string line = fmt::format(
      "{} {}", style.ascii ? "o" : "\u2812\u2812", judgement.baseline.arm);
  const std::string dots = fmt::format(
      "{} {}", style.ascii ? "x" : "\u2802\u2802", judgement.candidate.arm);
  return fmt::format("{}   {}{}", Paint(line, kBlue, style),
                     Paint(dots, kYellow, style),
                     style.ascii ? "   # both" : "");
}

std::string Draw(const Chart& chart, const TextStyle& style) {
  const auto lines = DrawChart(chart, style);
  if (lines.empty()) return "  no finite value to draw\n";
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::string Charts(const Judgement& judgement, const TextStyle& style) {
  const auto& curves = judgement.curves;
  if (curves.step.empty()) return "";
  Chart loss;
  loss.step = curves.step;
  loss.curves = {{curves.baseline_nats, false}, {curves.candidate_nats, true}};
  loss.rows = 12;
  if (judgement.final_window.has_value()) {
    loss.marked_step = judgement.final_window->first_step;
  }
  const size_t seeds = judgement.baseline.runs.size();
  const std::string loss_title = fmt::format(
      "Loss in nats, mean over {} seed{}", seeds, seeds == 1 ? "" : "s");
  return fmt::format("\n{}   {}\n{}\n{}\n{}", Paint(loss_title, kBold, style),
                     Legend(judgement, style), Draw(loss, style),
                     Paint(DifferenceTitle(judgement), kBold, style),
                     Draw(DifferenceChart(judgement), style));
}

// ---- measures and checks ---------------------------------------------------

std::string Measures(const Judgement& judgement, const TextStyle& style) {
  if (judgement.measures.empty()) return "";
  std::string text = Heading("Reported, not gated", style);
  for (const gate::Measure& measure : judgement.measures) {
    const std::string line =
        fmt::format("  {:<18} {:>10} {:<5}", measure.name,
                    fmt::format("{:.4g}", measure.value), measure.unit);
    const size_t indent = line.size() + 1;
    text += fmt::format("{} {}\n", line,
                        Wrap(measure.evidence, indent, indent, style));
  }
  return text;
}

/// In place of the outcome of a check that another level made unnecessary.
constexpr std::string_view kNotNeeded = "not needed";

/// OUTCOME level name: statement (evidence), and what to do on a line of its
/// own. Outcomes are padded to `outcome_width`.
std::string CheckLines(const Check& check, size_t outcome_width,
                       const TextStyle& style) {
  const std::string_view word =
      check.gates ? gate::OutcomeName(check.outcome) : kNotNeeded;
  const std::string outcome = fmt::format("{:<{}}", word, outcome_width);
  const std::string name = fmt::format("{} {:<15}", check.level, check.name);
  const size_t indent = 2 + outcome.size() + 2 + name.size() + 2;
  std::string statement = StatementOf(check);
  if (!check.evidence.empty()) {
    statement += fmt::format(" ({})", check.evidence);
  }
  std::string text = fmt::format(
      "  {}  {}  {}\n",
      check.gates ? Paint(outcome, OutcomeColor(check.outcome), style)
                  : outcome,
      name, Wrap(statement, indent, indent, style));
  if (!check.next.empty()) {
    text += fmt::format(
        "{:{}}{}\n", "", indent,
        Wrap(fmt::format("next: {}", check.next), indent, indent, style));
  }
  return text;
}

std::string Controls(const Judgement& judgement, const TextStyle& style) {
  const std::string text = ControlsText(judgement);
  if (text.empty()) return "";
  const std::string heading = fmt::format(
      "Control and null arms, {:g} % intervals over seeds",
      100 - 200 * (judgement.looks
                       ? judgement.looks->NominalAlpha(judgement.policy)
                       : judgement.policy.alpha));
  return Heading(heading, style) + text;
}

std::string Checks(const Judgement& judgement, const TextStyle& style) {
  size_t width = 0;
  for (const Check& check : judgement.checks) {
    width =
        std::max(width, check.gates ? gate::OutcomeName(check.outcome).size()
                                    : kNotNeeded.size());
  }
  std::string text = Heading("Checks", style);
  for (const Check& check : judgement.checks) {
    text += CheckLines(check, width, style);
  }
  return text;
}

/// The tensors of level L3 that stand out; not a gate.
std::string Tensors(const Judgement& judgement, const TextStyle& style) {
  constexpr size_t kShown = 10;
  if (judgement.tensors.empty()) return "";
  std::string text = Heading("Tensors to look at", style);
  const size_t shown = std::min(kShown, judgement.tensors.size());
  for (const auto& finding : std::span(judgement.tensors).first(shown)) {
    const std::string line = fmt::format(
        "{} at step {}: {:+.3g} sd, adjusted p {:.2g}", finding.statistic,
        finding.step, finding.z, finding.adjusted_p);
    text += fmt::format("  {}\n", Wrap(line, 2, 4, style));
  }
  if (shown < judgement.tensors.size()) {
    text += fmt::format("  and {} more in verdict.json\n",
                        judgement.tensors.size() - shown);
  }
  return text;
}

/// Rules that other projects' users know.
std::string Peers(const Judgement& judgement, const TextStyle& style) {
  if (judgement.peers.empty()) return "";
  std::string text =
      Heading("Rules of other projects, which decide nothing here", style);
  for (const gate::PeerOpinion& peer : judgement.peers) {
    text += fmt::format(
        "  {}\n",
        Wrap(fmt::format("{} accepts {} of {}: {} ({})", peer.name,
                         peer.accepted, peer.judged, peer.rule, peer.source),
             2, 4, style));
  }
  return text;
}

std::string Warnings(const Judgement& judgement, const TextStyle& style) {
  if (judgement.warnings.empty()) return "";
  std::string text = Heading("Warnings", style);
  for (const std::string& warning : judgement.warnings) {
    text += fmt::format("  {} {}\n", Paint("warning:", kYellow, style),
                        Wrap(warning, 11, 4, style));
  }
  return text;
}

/// "PASS  mxfp8 against bf16: ... (exit code 0)". One line, however long, which
/// scripts look for.
std::string VerdictLine(const Judgement& judgement, const TextStyle& style) {
  return Paint(std::string(gate::OutcomeName(judgement.outcome)),
               OutcomeColor(judgement.outcome), style) +
         fmt::format("  {} against {}: {} (exit code {})\n",
                     judgement.candidate.arm, judgement.baseline.arm,
                     VerdictReasons(judgement),
                     gate::ExitCode(judgement.outcome));
}

}  // namespace

const char* OutcomeColor(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return kGreen;
    case Outcome::kInconclusive:
      return kYellow;
    case Outcome::kFail:
    case Outcome::kInvalid:
      break;
  }
  return kRed;
}

Chart DifferenceChart(const Judgement& judgement) {
  Chart chart;
  chart.step = judgement.curves.step;
  chart.curves = {{judgement.curves.difference_percent, false}};
  chart.guides = {0};
  // A margin in tokens has no place on this scale.
  if (!judgement.policy.InTokens()) {
    const double percent = judgement.policy.margin_percent;
    chart.guides = {-percent, 0, percent};
  }
  chart.rows = 7;
  chart.signed_labels = true;
  if (judgement.final_window.has_value()) {
    chart.marked_step = judgement.final_window->first_step;
  }
  return chart;
}

std::string DifferenceTitle(const Judgement& judgement) {
  const std::string margin =
      judgement.policy.InTokens()
          ? ""
          : fmt::format("   margin +-{:g}", judgement.policy.margin_percent);
  return fmt::format("Paired loss difference {} - {} in %{}",
                     judgement.candidate.arm, judgement.baseline.arm, margin);
}

std::string VerdictReasons(const Judgement& judgement) {
  std::string reasons;
  for (const Check& check : judgement.checks) {
    if (!check.gates || check.outcome != judgement.outcome) continue;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", check.level,
                           check.name);
  }
  if (judgement.outcome == Outcome::kPass) {
    reasons = fmt::format(
        "{} checks pass",
        std::count_if(judgement.checks.begin(), judgement.checks.end(),
                      [](const Check& check) { return check.gates; }));
    const std::vector<std::string> lacking = judgement.WithoutEvidence();
    if (!lacking.empty()) {
      reasons += fmt::format("; no evidence: {}", fmt::join(lacking, ", "));
    }
    if (judgement.controls && !judgement.controls->control &&
        !judgement.controls->is_candidate) {
      reasons += "; no control";
    }
  }
  return reasons;
}

gate::Judgement WithSides(gate::Judgement judgement) {
  if (judgement.policy.question == compare::Question::kRegression &&
      judgement.baseline.arm == judgement.candidate.arm) {
    judgement.baseline.arm = "approved";
    judgement.candidate.arm += " now";
  }
  return judgement;
}

std::string RenderTerminal(const Judgement& full, const TextStyle& style) {
  const Judgement judgement = WithSides(full);
  return Header(judgement, style) + "\n" + Table(judgement) +
         EntropyLines(judgement, style) + Charts(judgement, style) +
         Measures(judgement, style) + Controls(judgement, style) +
         Checks(judgement, style) + Peers(judgement, style) +
         Tensors(judgement, style) + RenderPrecision(judgement, style) +
         Warnings(judgement, style) + "\n" + VerdictLine(judgement, style);
}

}  // namespace isoloss::report
