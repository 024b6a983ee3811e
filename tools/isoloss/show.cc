// isoloss show: one run log at a glance.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "isoloss/compare/exchange_summary.h"
#include "isoloss/report/chart.h"
#include "judge.h"

namespace isoloss::cli {
namespace {

void PrintProvenance(const compare::Run& run) {
  const runlog::Provenance& p = run.log.provenance;
  fmt::print("{}\n", run.file);
  fmt::print("  experiment  {} (config {})\n", p.experiment_name,
             p.config_digest);
  fmt::print("  arm         {}, recipe {}, seed {}\n", p.arm, p.recipe, p.seed);
  fmt::print("  made by     {} ({}, {}, kernels: {})\n", p.tool_version,
             p.commit, p.compiler, p.cpu_target);
  fmt::print("  corpus      {} (digest {})\n", p.corpus_description,
             p.corpus_digest);
  fmt::print("  model       {} parameters, initial weights {}\n", p.parameters,
             p.initial_weights_digest);
  fmt::print("  GEMMs       {} of {} quantised per step\n",
             p.quantized_gemms_per_step, p.gemms_per_step);
  fmt::print("  steps       {} of {} planned{}\n", run.log.steps.step.size(),
             p.steps_planned, p.complete ? "" : ", incomplete");
}

std::string ByteText(double bytes) {
  return bytes < 0x1p20 ? fmt::format("{:.1f} KiB", bytes / 0x1p10)
                        : fmt::format("{:.1f} MiB", bytes / 0x1p20);
}

/// Where experts lived and how rows travelled; nothing for logs that do not
/// say.
void PrintExchange(const runlog::RunLog& log) {
  const runlog::Provenance& p = log.provenance;
  if (p.exchange.empty()) return;
  fmt::print("  exchange    {}\n", p.exchange);
  const auto summary = compare::SummarizeExchange(log);
  if (!summary || p.ranks < 2) return;
  fmt::print(
      "  mesh        {} ranks on {} nodes (transport {}, processes {}): per "
      "step "
      "{} within nodes, {} between\n",
      p.ranks, summary->nodes, p.transport, p.processes,
      ByteText(summary->bytes_within_nodes),
      ByteText(summary->bytes_between_nodes));
  fmt::print(
      "  rows        {:.2f} per token, {:.2f} after rank, {:.2f} after node "
      "deduplication; busiest rank {:.2f} x the mean\n",
      summary->rows_per_token, summary->rank_rows_per_token,
      summary->node_rows_per_token, summary->busiest_rank_over_mean);
  if (summary->crc_failures > 0) {
    fmt::print("  damage      {} messages arrived damaged, {} repaired\n",
               summary->crc_failures, summary->resends);
  }
}

void PrintLoss(const runlog::RunLog& log, const report::TextStyle& style) {
  report::Chart chart;
  chart.step = log.steps.step;
  chart.curves = {{log.steps.loss_nats, false}};
  fmt::print("\nloss (nats)\n");
  for (const std::string& line : report::DrawChart(chart, style)) {
    fmt::print("{}\n", line);
  }
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    fmt::print("{}step {:>7}  held-out loss {:.4f} nats\n", i == 0 ? "\n" : "",
               log.eval.step[i], log.eval.loss_nats[i]);
  }
}

}  // namespace

Action DeclareShow(CLI::App& app) {
  struct Arguments {
    std::filesystem::path log;
    bool ascii = false;
    bool recipe = false;
  };
  auto arguments = std::make_shared<Arguments>();
  app.add_option("log", arguments->log, "Run log (HDF5)")->required();
  app.add_flag("--ascii", arguments->ascii, "Draw with 7-bit characters only");
  app.add_flag("--recipe", arguments->recipe, "Print what each GEMM got");
  return [arguments] {
    const std::vector<compare::Run> runs = ReadRuns({arguments->log});
    ReportArguments report;
    report.ascii = arguments->ascii;
    PrintProvenance(runs[0]);
    PrintExchange(runs[0].log);
    if (arguments->recipe) {
      fmt::print("\n{}", runs[0].log.provenance.resolved_recipe);
    }
    PrintLoss(runs[0].log, report.Style());
    return ExitCode::kPass;
  };
}

}  // namespace isoloss::cli
