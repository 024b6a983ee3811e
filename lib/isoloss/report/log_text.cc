#include "isoloss/report/log_text.h"

#include <fmt/format.h>

#include <initializer_list>

#include "isoloss/compare/exchange_summary.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/live_view.h"
#include "isoloss/report/recipe_text.h"

namespace isoloss::report {
namespace {

using document::Chart;
using document::DrawChart;
using document::FieldLine;
using document::TextStyle;

// Logs of other programs tell less: nothing stands for what they lack.

/// `word` and the value, or "" without one.
std::string Prefixed(const char* word, const std::string& value) {
  return value.empty() ? "" : word + value;
}

std::string KnownParts(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += Prefixed(text.empty() ? "" : ", ", part);
  }
  return text;
}

std::string WithDetails(const std::string& text, const std::string& details) {
  if (text.empty() || details.empty()) return text + details;
  return fmt::format("{} ({})", text, details);
}

std::string RunText(const runlog::Provenance& p) {
  return KnownParts({p.arm, Prefixed("recipe ", p.recipe),
                     p.seed < 0 ? "" : fmt::format("seed {}", p.seed),
                     p.perturbation});
}

std::string ExperimentText(const runlog::Provenance& p) {
  return WithDetails(p.experiment_name, Prefixed("config ", p.config_digest));
}

std::string MakerText(const runlog::Provenance& p) {
  return WithDetails(
      p.tool_version.empty() ? p.origin.format : p.tool_version,
      KnownParts({p.commit, p.compiler, Prefixed("kernels: ", p.cpu_target)}));
}

std::string WeightsText(const runlog::Provenance& p) {
  return KnownParts(
      {p.parameters > 0 ? fmt::format("{} parameters", p.parameters) : "",
       Prefixed("initial weights ", p.initial_weights_digest)});
}

std::string GemmText(const runlog::Provenance& p) {
  if (p.gemms_per_step == 0) return "";
  return fmt::format("{} of {} quantised per step", p.quantized_gemms_per_step,
                     p.gemms_per_step);
}

std::string ProvenanceText(const std::string& file, const runlog::RunLog& log,
                           const TextStyle& style) {
  const runlog::Provenance& p = log.provenance;
  const auto field = [&](const char* name, const std::string& value) {
    return FieldLine(name, value, style);
  };
  return fmt::format("{}\n", file) + field("experiment", ExperimentText(p)) +
         field("arm", RunText(p)) + field("made by", MakerText(p)) +
         field("corpus", WithDetails(p.corpus_description,
                                     Prefixed("digest ", p.corpus_digest))) +
         field("model", WeightsText(p)) + field("GEMMs", GemmText(p)) +
         field("steps",
               fmt::format("{} of {} planned{}", log.steps.step.size(),
                           p.steps_planned, p.complete ? "" : ", incomplete"));
}

std::string ByteText(double bytes) {
  return bytes < 0x1p20 ? fmt::format("{:.1f} KiB", bytes / 0x1p10)
                        : fmt::format("{:.1f} MiB", bytes / 0x1p20);
}

/// Where experts lived and how rows travelled; nothing for logs that do not
/// say.
std::string ExchangeText(const runlog::RunLog& log, const TextStyle& style) {
  const runlog::Provenance& p = log.provenance;
  std::string text = FieldLine("exchange", p.exchange, style);
  if (text.empty()) return text;
  const auto summary = compare::SummarizeExchange(log);
  if (!summary || p.ranks < 2) return text;
  text += FieldLine(
      "mesh",
      fmt::format("{} ranks on {} nodes (transport {}, processes {}): per step "
                  "{} within nodes, {} between",
                  p.ranks, summary->nodes, p.transport, p.processes,
                  ByteText(summary->bytes_within_nodes),
                  ByteText(summary->bytes_between_nodes)),
      style);
  return text +
         FieldLine(
             "rows",
             fmt::format("{:.2f} per token, {:.2f} after rank, {:.2f} "
                         "after node deduplication; busiest rank {:.2f} "
                         "x the mean",
                         summary->rows_per_token, summary->rank_rows_per_token,
                         summary->node_rows_per_token,
                         summary->busiest_rank_over_mean),
             style);
}

std::string LossText(const runlog::RunLog& log, const TextStyle& style) {
  std::string text;
  Chart chart;
  chart.step = log.steps.step;
  chart.curves = {{log.steps.loss_nats, false}};
  text += fmt::format("\nloss (nats)\n");
  for (const std::string& line : DrawChart(chart, style)) {
    text += fmt::format("{}\n", line);
  }
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    text += fmt::format("{}step {:>7}  held-out loss {:.4f} nats\n",
                        i == 0 ? "\n" : "", log.eval.step[i],
                        log.eval.loss_nats[i]);
  }
  return text;
}

/// On one line each, as the arm above it.
std::string MadeByText(const runlog::Provenance& p) {
  const std::string experiment = ExperimentText(p);
  return fmt::format("{}{}{}  made by     {}\n",
                     experiment.empty() ? "" : "  experiment  ", experiment,
                     experiment.empty() ? "" : "\n", MakerText(p));
}

}  // namespace

std::string RenderRunLog(const ShownRun& run, const TextStyle& style) {
  const runlog::RunLog& log = run.log;
  std::string text = ProvenanceText(run.file, log, style);
  text += FieldLine("journal", run.note, style);
  text += ExchangeText(log, style);
  if (run.with_recipe) {
    text += "\n" + RecipeText(log.provenance.resolved_recipe, style);
  }
  text += LossText(log, style);
  text += RenderRunSummary(run.summary);
  if (!log.events.empty()) {
    text += "\nevents (UTC)\n" + RenderEvents(log.events, style);
  }
  return text;
}

std::string RenderProbeLog(const runlog::ProbeLog& log,
                           const std::string& file) {
  const runlog::Provenance& p = log.provenance;
  const ProbeSummary summary = SummarizeProbe(log);
  std::string text = fmt::format("{}: a probe log\n  arm         {}\n{}", file,
                                 RunText(p), MadeByText(p));
  if (!log.reference_recipe.empty()) {
    text += fmt::format("  reference   recipe {}, {} tensors compared\n",
                        log.reference_recipe, log.precision.step.size());
  }
  return text + "\n" + RenderProbe(summary) +
         ProbeVerdict(summary, fmt::format("arm {}, seed {}", p.arm, p.seed));
}

std::string RenderEnsembleLog(const runlog::Ensemble& ensemble,
                              const std::string& file) {
  const runlog::Provenance& p = ensemble.provenance;
  const bool benign = ensemble.kind == runlog::EnsembleKind::kBenign;
  return fmt::format(
      "{}: a null ensemble of kind {} (digest {})\n"
      "  judges      {}: arm {}, against {}\n{}{}",
      file, EnsembleKindName(ensemble.kind), ensemble.digest,
      benign ? "regression" : "precision",
      KnownParts({p.arm, Prefixed("recipe ", p.recipe)}),
      benign ? "its approved runs" : "arm " + ensemble.reference_provenance.arm,
      MadeByText(p), RenderEnsemble(SummarizeEnsemble(ensemble)));
}

}  // namespace isoloss::report
