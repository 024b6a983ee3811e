// isoloss show: logs, probes and ensembles at a glance.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "evidence_json.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/compare/exchange_summary.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/report/chart.h"
#include "isoloss/report/evidence_summary.h"
#include "isoloss/report/live_view.h"
#include "isoloss/report/run_summary.h"
#include "isoloss/runlog/sealed_file.h"
#include "json_output.h"
#include "judge.h"
#include "log_files.h"
#include "open_log.h"
#include "terminal_width.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

/// Columns below which lines are cut.
constexpr int kNarrow = 60;

struct ShowArguments {
  std::vector<fs::path> logs;
  bool ascii = false;
  bool recipe = false;
  bool json = false;
  std::vector<std::string> tensors;
  std::optional<int64_t> step;
};

std::string ProvenanceText(const std::string& file, const runlog::RunLog& log) {
  std::string text;
  const runlog::Provenance& p = log.provenance;
  text += fmt::format("{}\n", file);
  text += fmt::format("  experiment  {} (config {})\n", p.experiment_name,
                      p.config_digest);
  text += fmt::format("  arm         {}, recipe {}, seed {}\n", p.arm, p.recipe,
                      p.seed);
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
  if (summary->crc_failures > 0) {
    text +=
        fmt::format("  damage      {} messages arrived damaged, {} repaired\n",
                    summary->crc_failures, summary->resends);
  }
  return text;
}

std::string LossText(const runlog::RunLog& log,
                     const report::TextStyle& style) {
  std::string text;
  report::Chart chart;
  chart.step = log.steps.step;
  chart.curves = {{log.steps.loss_nats, false}};
  text += fmt::format("\nloss (nats)\n");
  for (const std::string& line : report::DrawChart(chart, style)) {
    text += fmt::format("{}\n", line);
  }
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    text += fmt::format("{}step {:>7}  held-out loss {:.4f} nats\n",
                        i == 0 ? "\n" : "", log.eval.step[i],
                        log.eval.loss_nats[i]);
  }
  return text;
}

Json TopJson(const std::vector<report::NamedValue>& values) {
  Json list = Json::array();
  for (const report::NamedValue& value : values) {
    Json entry{{"name", value.name}};
    PutNumber(entry, "value", value.value);
    list.push_back(entry);
  }
  return list;
}

Json LayersJson(const std::vector<report::LayerSummary>& layers) {
  Json list = Json::array();
  for (const report::LayerSummary& layer : layers) {
    Json entry{{"layer", layer.layer}};
    PutNumber(entry, "router_entropy_nats", layer.router_entropy_nats);
    PutNumber(entry, "load_max_over_mean", layer.load_max_over_mean);
    PutInteger(entry, "experts_without_tokens", layer.experts_without_tokens);
    PutInteger(entry, "dropped_tokens", layer.dropped_tokens);
    PutInteger(entry, "routing_flips", layer.routing_flips);
    list.push_back(entry);
  }
  return list;
}

Json TensorsJson(const std::vector<report::TensorSummary>& tensors) {
  Json list = Json::array();
  for (const report::TensorSummary& tensor : tensors) {
    Json entry{{"name", tensor.name}, {"digest", tensor.digest}};
    for (size_t i = 0; i < tensor.statistics.size(); ++i) {
      PutNumber(entry, runlog::kTensorStatistics[i].name, tensor.statistics[i]);
    }
    list.push_back(entry);
  }
  return list;
}

Json RunJson(const std::string& file, const OpenedLog& opened,
             const report::RunSummary& summary) {
  const runlog::RunLog& log = opened.log;
  Json json{{"kind", "run log"},
            {"file", file},
            {"provenance", ProvenanceJson(log.provenance)},
            {"is_journal", opened.journal},
            {"note", opened.note},
            {"steps", summary.steps},
            {"last_step", summary.last_step}};
  PutNumber(json, "loss_nats", summary.loss_nats);
  PutNumber(json, "grad_norm", summary.grad_norm);
  PutNumber(json, "held_out_loss_nats", summary.held_out_loss_nats);
  json["nonfinite_steps"] = summary.nonfinite_steps;
  PutInteger(json, "first_nonfinite_step", summary.first_nonfinite_step);
  PutInteger(json, "parameter_step", summary.parameter_step);
  json["top_grad_norms"] = TopJson(summary.top_grad_norms);
  json["top_update_ratios"] = TopJson(summary.top_update_ratios);
  PutInteger(json, "moe_step", summary.moe_step);
  json["layers"] = LayersJson(summary.layers);
  PutInteger(json, "tensor_step", summary.tensor_step);
  json["tensors"] = TensorsJson(summary.tensors);
  json["events"] = Json::array();
  for (const runlog::Event& event : log.events) {
    Json entry{{"kind", event.kind}, {"text", event.text}};
    PutNumber(entry, "unix_seconds", event.unix_seconds);
    json["events"].push_back(entry);
  }
  return json;
}

report::RunSummaryOptions SummaryOptions(const ShowArguments& arguments) {
  report::RunSummaryOptions options;
  options.step = arguments.step;
  if (arguments.tensors.empty()) return options;
  options.wants_tensor = [&arguments](std::string_view name) {
    return precision::FirstMatch(arguments.tensors, name) != nullptr;
  };
  return options;
}

/// In a narrow terminal a table of lines that wrap can't be read; elsewhere
/// nothing is cut, for who reads on needs all of it.
void Print(const std::string& text, int columns) {
  if (columns >= kNarrow) {
    fmt::print("{}", text);
    return;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    fmt::print("{}\n", report::ClipLine(line, columns));
  }
}

/// What is shown of one file: text, or an object.
struct Shown {
  std::string text;
  Json json;
};

Shown ShowRun(const std::string& file, const OpenedLog& opened,
              const ShowArguments& arguments, const report::TextStyle& style) {
  const runlog::RunLog& log = opened.log;
  const report::RunSummary summary =
      report::SummarizeRun(log, SummaryOptions(arguments));
  if (arguments.json) return {"", RunJson(file, opened, summary)};
  std::string text = ProvenanceText(file, log);
  if (!opened.note.empty()) {
    text += fmt::format("  journal     {}\n", opened.note);
  }
  text += ExchangeText(log);
  if (arguments.recipe) text += "\n" + log.provenance.resolved_recipe;
  text += LossText(log, style);
  text += report::RenderRunSummary(summary);
  if (!log.events.empty()) {
    text += "\nevents (UTC)\n" + report::RenderEvents(log.events, style);
  }
  return {text, {}};
}

std::string MadeByText(const runlog::Provenance& p) {
  return fmt::format(
      "  experiment  {} (config {})\n"
      "  made by     {} ({}, {}, kernels: {})\n",
      p.experiment_name, p.config_digest, p.tool_version, p.commit, p.compiler,
      p.cpu_target);
}

Shown ShowProbe(const std::string& file, const runlog::ProbeLog& log,
                const ShowArguments& arguments) {
  if (arguments.json) return {"", ProbeJson(log, file)};
  const runlog::Provenance& p = log.provenance;
  const report::ProbeSummary summary = report::SummarizeProbe(log);
  std::string text =
      fmt::format("{}: a probe log\n  arm         {}, recipe {}, seed {}\n{}",
                  file, p.arm, p.recipe, p.seed, MadeByText(p));
  if (!log.reference_recipe.empty()) {
    text += fmt::format("  reference   recipe {}, {} tensors compared\n",
                        log.reference_recipe, log.precision.step.size());
  }
  text += "\n" + report::RenderProbe(summary);
  text += report::ProbeVerdict(summary,
                               fmt::format("arm {}, seed {}", p.arm, p.seed));
  return {text, {}};
}

Shown ShowEnsemble(const std::string& file, const runlog::Ensemble& ensemble,
                   const ShowArguments& arguments) {
  if (arguments.json) return {"", EnsembleJson(ensemble, file)};
  const runlog::Provenance& p = ensemble.provenance;
  const bool benign = ensemble.kind == runlog::EnsembleKind::kBenign;
  return {
      fmt::format("{}: a null ensemble of kind {} (digest {})\n"
                  "  judges      {}: arm {}, recipe {}, against {}\n{}{}",
                  file, EnsembleKindName(ensemble.kind), ensemble.digest,
                  benign ? "regression" : "precision", p.arm, p.recipe,
                  benign ? "its approved runs"
                         : "arm " + ensemble.reference_provenance.arm,
                  MadeByText(p),
                  report::RenderEnsemble(report::SummarizeEnsemble(ensemble))),
      {}};
}

/// Of a run log alone.
void RefuseRunOptions(const std::string& file, const ShowArguments& arguments) {
  const char* option = arguments.recipe             ? "--recipe"
                       : !arguments.tensors.empty() ? "--tensors"
                       : arguments.step             ? "--step"
                                                    : nullptr;
  if (option == nullptr) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} is given, but it is of a run log, and this is none. Leave "
             "it out.",
             file, option);
}

Shown ShowFile(const fs::path& file, const ShowArguments& arguments,
               const report::TextStyle& style) {
  const std::string name = Printable(file.string());
  try {
    return ShowRun(name, OpenLog(file), arguments, style);
  } catch (const runlog::WrongKindError& error) {
    const bool is_probe = &error.found() == &runlog::kProbeLogFile;
    if (!is_probe && &error.found() != &runlog::kEnsembleFile) throw;
    RefuseRunOptions(name, arguments);
    return is_probe ? ShowProbe(name, runlog::ReadProbeLog(file), arguments)
                    : ShowEnsemble(name, runlog::ReadEnsemble(file), arguments);
  }
}

ExitCode Show(const ShowArguments& arguments) {
  ReportArguments report;
  report.ascii = arguments.ascii;
  report::TextStyle style = report.Style();
  const int columns = TerminalWidth().value_or(style.width);
  style.width = std::min(style.width, columns);
  std::vector<Shown> all;
  for (const fs::path& path : arguments.logs) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      all.push_back(ShowFile(path, arguments, style));
      continue;
    }
    for (compare::Run& run : ReadRuns({path})) {
      all.push_back(
          ShowRun(run.file, {std::move(run.log), false, ""}, arguments, style));
    }
  }
  if (arguments.json && all.size() == 1) {
    PrintJson(all.front().json);
  } else if (arguments.json) {
    Json json{{"logs", Json::array()}};
    for (Shown& shown : all) json["logs"].push_back(std::move(shown.json));
    PrintJson(json);
  } else {
    for (const Shown& shown : all) {
      if (&shown != &all.front()) fmt::print("\n");
      Print(shown.text, columns);
    }
  }
  return ExitCode::kPass;
}

}  // namespace

Action DeclareShow(CLI::App& app) {
  auto arguments = std::make_shared<ShowArguments>();
  app.add_option("logs", arguments->logs,
                 "Run logs, probe logs or null ensembles (HDF5), the journal "
                 "of a run that has not ended, or a folder, which stands for "
                 "the run logs in it")
      ->required();
  app.add_flag("--ascii", arguments->ascii, "Draw with 7-bit characters only");
  app.add_flag("--recipe", arguments->recipe, "Print what each GEMM got");
  DeclareJson(app, arguments->json,
              "of the log, or of several their list `logs`");
  app.add_option("--tensors", arguments->tensors,
                 "List statistics of tensors whose name holds this; `*` stands "
                 "for any characters; repeatable")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  app.add_option("--step", arguments->step,
                 "Parameters, MoE layers and tensors at this step; without it "
                 "at the last one logged, tensors at the last one with "
                 "statistics")
      ->check(IntegerIn(0, kMostSteps));
  return [arguments] { return Show(*arguments); };
}

}  // namespace isoloss::cli
