#include "isoloss/report/log_text.h"

#include <fmt/format.h>

#include "isoloss/compare/exchange_summary.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/live_view.h"

namespace isoloss::report {
namespace {

std::string ProvenanceText(const std::string& file, const runlog::RunLog& log) {
  std::string text;
  const runlog::Provenance& p = log.provenance;
  text += fmt::format("{}\n", file);
  text += fmt::format("  experiment  {} (config {})\n", p.experiment_name,
                      p.config_digest);
  text +=
      fmt::format("  arm         {}, recipe {}, seed {}{}{}\n", p.arm, p.recipe,
                  p.seed, p.perturbation.empty() ? "" : ", ", p.perturbation);
  text += fmt::format("  made by     {} ({}, {}, kernels: {})\n",
                      p.tool_version, p.commit, p.compiler, p.cpu_target);
  text += fmt::format("  corpus      {} (digest {})\n", p.corpus_description,
                      p.corpus_digest);
  text += fmt::format("  model       {} parameters, initial weights {}\n",
                      p.parameters, p.initial_weights_digest);
  text += fmt::format("  GEMMs       {} of {} quantised per step\n",
                      p.quantized_gemms_per_step, p.gemms_per_step);
  text +=
      fmt::format("  steps       {} of {} planned{}\n", log.steps.step.size(),
                  p.steps_planned, p.complete ? "" : ", incomplete");
  return text;
}

std::string ByteText(double bytes) {
  return bytes < 0x1p20 ? fmt::format("{:.1f} KiB", bytes / 0x1p10)
                        : fmt::format("{:.1f} MiB", bytes / 0x1p20);
}

/// Where experts lived and how rows travelled; nothing for logs that do not
/// say.
std::string ExchangeText(const runlog::RunLog& log) {
  std::string text;
  const runlog::Provenance& p = log.provenance;
  if (p.exchange.empty()) return text;
  text += fmt::format("  exchange    {}\n", p.exchange);
  const auto summary = compare::SummarizeExchange(log);
  if (!summary || p.ranks < 2) return text;
  text += fmt::format(
      "  mesh        {} ranks on {} nodes (transport {}, processes {}): per "
      "step "
      "{} within nodes, {} between\n",
      p.ranks, summary->nodes, p.transport, p.processes,
      ByteText(summary->bytes_within_nodes),
      ByteText(summary->bytes_between_nodes));
  text += fmt::format(
      "  rows        {:.2f} per token, {:.2f} after rank, {:.2f} after node "
      "deduplication; busiest rank {:.2f} x the mean\n",
      summary->rows_per_token, summary->rank_rows_per_token,
      summary->node_rows_per_token, summary->busiest_rank_over_mean);
  return text;
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

std::string MadeByText(const runlog::Provenance& p) {
  return fmt::format(
      "  experiment  {} (config {})\n"
      "  made by     {} ({}, {}, kernels: {})\n",
      p.experiment_name, p.config_digest, p.tool_version, p.commit, p.compiler,
      p.cpu_target);
}

}  // namespace

std::string RenderRunLog(const ShownRun& run, const TextStyle& style) {
  const runlog::RunLog& log = run.log;
  std::string text = ProvenanceText(run.file, log);
  if (!run.note.empty()) text += fmt::format("  journal     {}\n", run.note);
  text += ExchangeText(log);
  if (run.with_recipe) text += "\n" + log.provenance.resolved_recipe;
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
  std::string text =
      fmt::format("{}: a probe log\n  arm         {}, recipe {}, seed {}\n{}",
                  file, p.arm, p.recipe, p.seed, MadeByText(p));
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
      "  judges      {}: arm {}, recipe {}, against {}\n{}{}",
      file, EnsembleKindName(ensemble.kind), ensemble.digest,
      benign ? "regression" : "precision", p.arm, p.recipe,
      benign ? "its approved runs" : "arm " + ensemble.reference_provenance.arm,
      MadeByText(p), RenderEnsemble(SummarizeEnsemble(ensemble)));
}

}  // namespace isoloss::report
