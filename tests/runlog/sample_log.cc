#include "runlog/sample_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>

#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema.h"
#include "support/sample_graph.h"

namespace isoloss::runlog {
namespace {

/// Gives every provenance field a value of its own.
void Fill(Provenance& provenance) {
  int count = 0;
  for (const Column& column : AttributeGroup().columns) {
    const std::string& name = column.field.name;
    MutableView(provenance).WithValue(column, [&]<typename T>(T& value) {
      if constexpr (std::is_same_v<T, std::string>) {
        const bool has_lines =
            name == "experiment_text" || name == "resolved_recipe";
        value = fmt::format("{}: \"größe\"{}line {}", name,
                            has_lines ? "\n" : ", ", ++count);
      } else if constexpr (std::is_same_v<T, int64_t>) {
        value = (int64_t{1} << 40) + ++count;
      } else if constexpr (std::is_same_v<T, double>) {
        value = 0.1 * ++count;
      } else {
        value = true;
      }
    });
  }
}

std::string Text(int32_t value) { return fmt::to_string(value); }
std::string Text(int64_t value) { return fmt::to_string(value); }
std::string Text(double value) { return fmt::format("{:.17g}", value); }
std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(const std::string& value) {
  return nlohmann::json(value).dump();
}

/// The line of a dataset: "steps/lr [1] 5 = 0.001 0.002".
template <typename T>
std::string DatasetLine(const Group& group, const Column& column,
                        const View& log, const std::vector<T>& values) {
  const bool is_labels = column.role == Role::kLabels;
  const size_t width = is_labels ? 1 : log.Width(column);
  std::string extent = fmt::to_string(values.size() / width);
  for (const Axis& axis : column.axes) {
    if (!is_labels) extent += fmt::format("x{}", log.Size(axis));
  }
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(Text(value));
  return fmt::format("{}/{} [{}] {} = {}", group.name, column.field.name,
                     column.field.unit, extent, fmt::join(texts, " "));
}

/// `count` values, each unlike those of other `first`s.
template <typename T>
std::vector<T> Numbers(T first, size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Three steps, 2 layers, 40 experts, 3 tokens, 2 slots: rows of 80 and of 12.
MoeColumns SampleMoe() {
  return {.step = {1, 2, 3},
          .layers = 2,
          .experts = 40,
          .tokens = 3,
          .top_k = 2,
          .tokens_per_expert = Numbers<int64_t>(1000, 3 * 2 * 40),
          .expert_bias = Numbers(-100.25, 3 * 2 * 40),
          .dropped_tokens = Numbers<int64_t>(2000, 3 * 2),
          .padding_rows = Numbers<int64_t>(2100, 3 * 2),
          .expert_ids = Numbers<int32_t>(2200, 3 * 2 * 3 * 2),
          .router_entropy = Numbers(0.25, 3 * 2),
          .routing_digest = Numbers<int64_t>(-2300, 3 * 2),
          .routing_flips = Numbers<int64_t>(2400, 3 * 2)};
}

/// Four steps, 3 parameters.
ParameterColumns SampleParameters() {
  return {.step = {1, 2, 3, 4},
          .count = 3,
          .names = {"tok_embeddings.weight", "layers.0.größe", "output.weight"},
          .grad_norm = Numbers(7.5, 4 * 3),
          .update_ratio = Numbers(-30.5, 4 * 3)};
}

/// Two of the steps, 2 tensors; all statistics but one.
TensorColumns SampleTensors() {
  TensorColumns tensors = {
      .step = {1, 4},
      .count = 2,
      .names = {"layers.0.wq_activation", "layers.0.wq_wgrad"},
      .digest = {-1, 0, int64_t{1} << 62, 5},
      .statistics = {},
      .scale_bytes = int64_t{kScaleBytes},
      .e8m0_histogram = Numbers<int32_t>(0, 2 * 2 * kScaleBytes),
      .e8m0_histogram_columnwise = Numbers<int32_t>(-9, 2 * 2 * kScaleBytes)};
  for (size_t i = 0; i < kTensorStatisticCount; ++i) {
    tensors.statistics[i] = Numbers(0.5 + 100.0 * static_cast<double>(i), 4);
  }
  tensors.statistics[kStat_sum].clear();
  tensors.statistics[kStat_mean][1] = std::numeric_limits<double>::quiet_NaN();
  return tensors;
}

/// Two steps, 4 ranks, 3 layers.
ExchangeColumns SampleExchange() {
  return {.step = {1, 2},
          .ranks = 4,
          .layers = 3,
          .bytes_sent = Numbers<int64_t>(3000, 2 * 4),
          .bytes_received = Numbers<int64_t>(3100, 2 * 4),
          .bytes_to_self = Numbers<int64_t>(3200, 2),
          .bytes_within_nodes = Numbers<int64_t>(3300, 2),
          .bytes_between_nodes = Numbers<int64_t>(3400, 2),
          .messages = Numbers<int64_t>(3500, 2),
          .assignments = Numbers<int64_t>(3800, 2 * 3),
          .dispatch_rows = Numbers<int64_t>(3900, 2 * 3),
          .rank_rows = Numbers<int64_t>(4000, 2 * 3),
          .node_rows = Numbers<int64_t>(4100, 2 * 3),
          .max_rows_per_rank = Numbers<int64_t>(4200, 2 * 3),
          .max_rows_per_expert = Numbers<int64_t>(4300, 2 * 3),
          .empty_experts = Numbers<int64_t>(4400, 2 * 3),
          .wait_seconds = Numbers(0.125, 2 * 4),
          .bytes_by_pair = Numbers<int64_t>(int64_t{1} << 40, 4 * 4)};
}

}  // namespace

RunLog SampleLog() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RunLog log;
  Fill(log.provenance);
  log.provenance.resolved_recipe = std::string(100'000, 'r') + "\nend";
  log.provenance.final_weights_digest = "";
  log.provenance.entropy_floor_nats = kNan;
  log.provenance.graph = test_support::SampleGraph("e4m3·rceil");
  AddPhase({4, test_support::SampleGraph("").recipe}, log.provenance.graph);

  for (int64_t step = 1; step <= 5; ++step) {
    const double x = static_cast<double>(step);
    log.steps.Append({.step = step,
                      .tokens_seen = 2048 * step,
                      .loss_nats = 5.0 + 1.0 / (3.0 * x),
                      .grad_norm = 1.0 / x,
                      .lr = 1e-3 * x,
                      .step_seconds = 0.5 + x,
                      .tokens_per_second = 4096.0 / x,
                      .expert_load_max_over_mean = 1.25 * x,
                      .dead_experts = step - 1,
                      .quantized_gemms = 100 * step,
                      .nonfinite_gradients = 10 * step,
                      .batch_digest = -1000 * step});
  }
  log.steps.loss_nats[3] = kNan;
  log.steps.grad_norm[4] = kInfinity;
  log.eval = {.step = {0, 5},
              .loss_nats = {5.75, -kInfinity},
              .per_sequence_loss_nats = {5.5, 5.75, 6.0, 4.5, kNan, 0.1},
              .sequences = 3};
  log.parameters = SampleParameters();
  log.tensors = SampleTensors();
  log.moe = SampleMoe();
  log.exchange = SampleExchange();
  log.events = {{.unix_seconds = 1.7e9 + 0.25, .kind = "start", .text = ""},
                {.unix_seconds = 1.7e9 + 9, .kind = "finish", .text = "5 → ∞"}};
  return log;
}

RunLog SampleRows(int64_t step) {
  RunLog rows = SampleLog();
  rows.provenance = {};
  RunLog before = rows;
  KeepRowsUpTo(step - 1, before);
  KeepRowsUpTo(step, rows);
  if (step > 1) {
    DropRowsOf(before, rows);
    rows.events.clear();
    rows.parameters.names = SampleLog().parameters.names;
  }
  return rows;
}

std::vector<std::string> DumpLines(const RunLog& log) {
  std::vector<std::string> lines;
  const View view(log);
  for (const Group& group : SchemaOf<RunLog>()) {
    for (const Column& column : group.columns) {
      if (!group.IsFile()) {
        view.WithValues(column, [&](const auto& values) {
          if (values.empty()) return;
          lines.push_back(DatasetLine(group, column, view, values));
        });
        continue;
      }
      if (column.role == Role::kRunVersion) {  // of the file that is written
        lines.push_back(
            fmt::format("{} = {}", column.field.name, column.newest));
        continue;
      }
      view.WithValue(column, [&]<typename T>(const T& value) {
        if (column.field.optional && value == T{}) return;  // nor is it written
        lines.push_back(fmt::format("{} = {}", column.field.name, Text(value)));
      });
    }
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace isoloss::runlog
