#include "isoloss/report/log_text.h"

#include <fmt/format.h>

#include "isoloss/compare/exchange_summary.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/live_view.h"
#include "isoloss/report/recipe_text.h"
#include "isoloss/report/text_layout.h"

namespace isoloss::report {
namespace {

std::string ProvenanceText(const std::string& file, const runlog::RunLog& log,
                           const TextStyle& style) {
  const runlog::Provenance& p = log.provenance;
  const auto field = [&](const char* name, const std::string& value) {
    return FieldLine(name, value, style);
  };
  return fmt::format("{}\n", file) +
         field("experiment", fmt::format("{} (config {})", p.experiment_name,
                                         p.config_digest)) +
         field("arm", fmt::format("{}, recipe {}, seed {}{}{}", p.arm, p.recipe,
                                  p.seed, p.perturbation.empty() ? "" : ", ",
                                  p.perturbation)) +
         field("made by",
               fmt::format("{} ({}, {}, kernels: {})", p.tool_version, p.commit,
                           p.compiler, p.cpu_target)) +
         field("corpus", fmt::format("{} (digest {})", p.corpus_description,
                                     p.corpus_digest)) +
         field("model", fmt::format("{} parameters, initial weights {}",
                                    p.parameters, p.initial_weights_digest)) +
         field("GEMMs",
               fmt::format("{} of {} quantised per step",
                           p.quantized_gemms_per_step, p.gemms_per_step)) +
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
