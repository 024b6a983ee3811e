#include "isoloss/foreign/run_export.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <vector>

#include "isoloss/foreign/event_writer.h"

namespace isoloss::foreign {
namespace {

/// A column of /steps and torchtitan's name for it.
struct Metric {
  const char* name;
  const std::vector<double>* values;
};

/// W&B's `_step` counts calls of log, unless a trainer says otherwise.
constexpr const char* kTrainerStep = "trainer/global_step";
constexpr const char* kEvalLoss = "validation_metrics/loss";

/// Those that the log has.
std::vector<Metric> MetricsOf(const runlog::StepColumns& steps) {
  std::vector<Metric> metrics = {
      {"loss_metrics/global_avg_loss", &steps.loss_nats},
      {"grad_norm", &steps.grad_norm},
      {"lr", &steps.lr},
      {"throughput(tps)", &steps.tokens_per_second}};
  std::erase_if(metrics, [](const Metric& one) { return one.values->empty(); });
  return metrics;
}

/// What a step has: its place in /steps, in /eval, or both.
struct Row {
  std::optional<size_t> train;
  std::optional<size_t> eval;
  double seconds = 0;  ///< since the start
};

/// By step.
std::map<int64_t, Row> RowsOf(const runlog::RunLog& log) {
  std::map<int64_t, Row> rows;
  for (size_t i = 0; i < log.steps.step.size(); ++i) {
    rows[log.steps.step[i]].train = i;
  }
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    rows[log.eval.step[i]].eval = i;
  }
  double seconds = 0;
  for (auto& [step, row] : rows) {
    if (row.train && !log.steps.step_seconds.empty()) {
      const double more = log.steps.step_seconds[*row.train];
      if (std::isfinite(more) && more > 0) seconds += more;
    }
    row.seconds = seconds;
  }
  return rows;
}

/// The shortest decimal that reads back to the same bits.
std::string Exact(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string EventContent(const runlog::RunLog& log) {
  const double start = StartOf(log);
  const std::vector<Metric> metrics = MetricsOf(log.steps);
  EventWriter writer(start);
  for (const auto& [step, row] : RowsOf(log)) {
    const auto add = [&, at = step, wall = start + row.seconds](const char* tag,
                                                                double value) {
      writer.Add(tag, at, wall, static_cast<float>(value));
    };
    for (const Metric& metric : metrics) {
      if (row.train) add(metric.name, (*metric.values)[*row.train]);
    }
    if (row.eval) add(kEvalLoss, log.eval.loss_nats[*row.eval]);
  }
  return writer.content();
}

/// One row of W&B's history: keys and values, none for one that is missing.
using Cells = std::vector<std::pair<std::string, std::optional<double>>>;

Cells CellsOf(const runlog::RunLog& log, const Row& row,
              const std::vector<Metric>& metrics) {
  Cells cells = {{"_timestamp", StartOf(log) + row.seconds},
                 {"_runtime", row.seconds}};
  for (const Metric& metric : metrics) {
    cells.emplace_back(metric.name, std::nullopt);
    if (row.train) cells.back().second = (*metric.values)[*row.train];
  }
  if (log.eval.step.empty()) return cells;
  cells.emplace_back(kEvalLoss, std::nullopt);
  if (row.eval) cells.back().second = log.eval.loss_nats[*row.eval];
  return cells;
}

std::string WandbCsv(const runlog::RunLog& log) {
  const std::vector<Metric> metrics = MetricsOf(log.steps);
  std::string text = fmt::format("_step,{}", kTrainerStep);
  for (const auto& [key, value] : CellsOf(log, {}, metrics)) text += ',' + key;
  text += '\n';
  for (const auto& [step, row] : RowsOf(log)) {
    text += fmt::format("{},{}", step, step);
    for (const auto& [key, value] : CellsOf(log, row, metrics)) {
      text += ',';
      if (value) text += Exact(*value);
    }
    text += '\n';
  }
  return text;
}

std::string WandbJsonl(const runlog::RunLog& log) {
  const std::vector<Metric> metrics = MetricsOf(log.steps);
  std::string text;
  for (const auto& [step, row] : RowsOf(log)) {
    text += fmt::format("{{\"_step\":{},\"{}\":{}", step, kTrainerStep, step);
    for (const auto& [key, value] : CellsOf(log, row, metrics)) {
      if (!value) continue;
      const char* quote = std::isfinite(*value) ? "" : "\"";
      text += fmt::format(",\"{}\":{}{}{}", key, quote, Exact(*value), quote);
    }
    text += "}\n";
  }
  return text;
}

/// As Python prints it: a NaN has no sign.
double Unsigned(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

/// Rounded, with commas between thousands.
std::string WithCommas(double value) {
  std::string text = fmt::format("{:.0f}", value);
  const size_t first = text.starts_with('-') ? 1 : 0;
  for (size_t i = text.size(); i > first + 3;) {
    i -= 3;
    text.insert(i, ",");
  }
  return text;
}

/// "[titan] 2026-05-03 02:00:01,123 - root - INFO - ".
std::string TitanHead(double unix_seconds) {
  // Years of four digits; else the time of no clock.
  constexpr double kMost = 253'402'300'799.0;
  const bool known = unix_seconds >= 0 && unix_seconds <= kMost;
  const auto milliseconds =
      static_cast<int64_t>(known ? std::floor(unix_seconds * 1000) : 0);
  return fmt::format("[titan] {:%Y-%m-%d %H:%M:%S},{:03} - root - INFO - ",
                     fmt::gmtime(static_cast<std::time_t>(milliseconds / 1000)),
                     milliseconds % 1000);
}

std::string TitanStep(const runlog::StepColumns& steps, int64_t step,
                      size_t row) {
  std::string line = fmt::format("step: {:2}", step);
  const auto add = [&](const char* name, const std::vector<double>& values,
                       int width, int decimals) {
    if (values.empty()) return;
    line += fmt::format("  {}: {:>{}.{}f}", name, Unsigned(values[row]), width,
                        decimals);
  };
  add("loss", steps.loss_nats, 8, 5);
  add("grad_norm", steps.grad_norm, 7, 4);
  if (!steps.tokens_per_second.empty() &&
      std::isfinite(steps.tokens_per_second[row])) {
    line += "  tps: " + WithCommas(steps.tokens_per_second[row]);
  }
  return line;
}

std::string TitanLines(const runlog::RunLog& log) {
  std::string text;
  for (const auto& [step, row] : RowsOf(log)) {
    const std::string head = TitanHead(StartOf(log) + row.seconds);
    if (row.train) text += head + TitanStep(log.steps, step, *row.train) + '\n';
    if (row.eval) {
      text += fmt::format("{}validate step: {:2}  loss: {:>7.4f}\n", head, step,
                          Unsigned(log.eval.loss_nats[*row.eval]));
    }
  }
  return text;
}

}  // namespace

const char* ExtensionOf(RunForm form) {
  switch (form) {
    case RunForm::kTensorBoard:
      return "";
    case RunForm::kWandbCsv:
      return "csv";
    case RunForm::kWandbJsonl:
      return "jsonl";
    case RunForm::kTorchtitan:
      return "log";
  }
  return "";
}

double StartOf(const runlog::RunLog& log) {
  if (log.events.empty()) return 0;
  const double seconds = log.events.front().unix_seconds;
  return std::isfinite(seconds) ? seconds : 0;
}

std::string RunText(const runlog::RunLog& log, RunForm form) {
  switch (form) {
    case RunForm::kTensorBoard:
      return EventContent(log);
    case RunForm::kWandbCsv:
      return WandbCsv(log);
    case RunForm::kWandbJsonl:
      return WandbJsonl(log);
    case RunForm::kTorchtitan:
      return TitanLines(log);
  }
  return "";
}

}  // namespace isoloss::foreign
