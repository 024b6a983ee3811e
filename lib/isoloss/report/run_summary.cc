#include "isoloss/report/run_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/base/saturating.h"

namespace isoloss::report {
namespace {

using document::Document;
using runlog::RunLog;

/// The tensor table shows these statistics; JSON has all of them.
constexpr size_t kShownStatistics[] = {
    runlog::kStat_l2_norm,       runlog::kStat_mean,
    runlog::kStat_std,           runlog::kStat_cur_amax,
    runlog::kStat_nonfinite_num, runlog::kStat_underflows,
    runlog::kStat_saturated,     runlog::kStat_sqnr};

template <typename T>
std::optional<T> Last(const std::vector<T>& values) {
  if (values.empty()) return std::nullopt;
  return values.back();
}

template <typename T>
std::span<const T> RowOf(const std::vector<T>& values, size_t row,
                         size_t width) {
  if (values.size() < (row + 1) * width) return {};
  return {values.data() + row * width, width};
}

/// Returns the row of the wanted step, or the last row.
std::optional<size_t> ChosenRow(const std::vector<int64_t>& steps,
                                const std::optional<int64_t>& wanted) {
  if (steps.empty()) return std::nullopt;
  if (!wanted) return steps.size() - 1;
  const auto found = std::find(steps.begin(), steps.end(), *wanted);
  if (found == steps.end()) return std::nullopt;
  return static_cast<size_t>(found - steps.begin());
}

void CountNonfinite(const RunLog& log, RunSummary& summary) {
  const auto& s = log.steps;
  for (size_t i = 0; i < s.step.size(); ++i) {
    const bool bad =
        (i < s.loss_nats.size() && !std::isfinite(s.loss_nats[i])) ||
        (i < s.grad_norm.size() && !std::isfinite(s.grad_norm[i])) ||
        (i < s.nonfinite_gradients.size() && s.nonfinite_gradients[i] > 0);
    if (!bad) continue;
    ++summary.nonfinite_steps;
    if (!summary.first_nonfinite_step) summary.first_nonfinite_step = s.step[i];
  }
}

/// Returns the `top` largest values; values that are not finite come first.
std::vector<NamedValue> Largest(const std::vector<std::string>& names,
                                std::span<const double> values, size_t top) {
  std::vector<NamedValue> all;
  for (size_t i = 0; i < values.size(); ++i) {
    all.push_back({names[i], values[i]});
  }
  const auto key = [](const NamedValue& value) {
    return std::isfinite(value.value) ? value.value : HUGE_VAL;
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const NamedValue& a, const NamedValue& b) {
                     return key(a) > key(b);
                   });
  all.resize(std::min(all.size(), top));
  return all;
}

void SummarizeParameters(const RunLog& log, const RunSummaryOptions& options,
                         RunSummary& summary) {
  const auto& p = log.parameters;
  const auto row = ChosenRow(p.step, options.step);
  if (!row) return;
  summary.parameter_step = p.step[*row];
  const size_t count = p.names.size();
  summary.top_grad_norms =
      Largest(p.names, RowOf(p.grad_norm, *row, count), options.top);
  summary.top_update_ratios =
      Largest(p.names, RowOf(p.update_ratio, *row, count), options.top);
}

void SummarizeLayers(const RunLog& log, const RunSummaryOptions& options,
                     RunSummary& summary) {
  const auto& moe = log.moe;
  const auto row = ChosenRow(moe.step, options.step);
  if (!row) return;
  summary.moe_step = moe.step[*row];
  const auto layers = static_cast<size_t>(moe.layers);
  const auto experts = static_cast<size_t>(moe.experts);
  const auto value = [&](const auto& values, size_t layer) {
    const auto of_step = RowOf(values, *row, layers);
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return of_step.empty() ? std::optional<Value>() : of_step[layer];
  };
  const auto tokens = RowOf(moe.tokens_per_expert, *row, layers * experts);
  for (size_t layer = 0; layer < layers; ++layer) {
    LayerSummary& of = summary.layers.emplace_back();
    of.layer = static_cast<int64_t>(layer);
    of.router_entropy_nats = value(moe.router_entropy, layer);
    of.dropped_tokens = value(moe.dropped_tokens, layer);
    of.routing_flips = value(moe.routing_flips, layer);
    if (tokens.empty()) continue;
    const auto of_layer = tokens.subspan(layer * experts, experts);
    of.load_max_over_mean = LoadMaxOverMean(of_layer.data(), experts);
    of.experts_without_tokens = std::ranges::count(of_layer, 0);
  }
}

[[noreturn]] void RefuseStep(const RunLog& log, int64_t step) {
  const auto& steps = log.tensors.step;
  ThrowError(ErrorKind::kConfig,
             "show: tensors at step {} are asked for, but the log has them at "
             "{}. Choose one with --step or log more with "
             "log.statistics_every.",
             step,
             steps.empty() ? "no step"
                           : fmt::format("steps {}", fmt::join(steps, ", ")));
}

/// Returns the last row with statistics of any tensor, or else the last row. A
/// row has statistics if a tensor's `numel` is a number.
std::optional<size_t> LastTensorRow(const runlog::TensorColumns& tensors) {
  const auto& numel = tensors.statistics[runlog::kStat_numel];
  const size_t width = std::max<size_t>(1, tensors.names.size());
  for (size_t i = std::min(numel.size(), tensors.step.size() * width);
       i-- > 0;) {
    if (!std::isnan(numel[i])) return i / width;
  }
  return ChosenRow(tensors.step, std::nullopt);
}

[[noreturn]] void RefuseUnknownStep(const RunLog& log, int64_t step) {
  const auto& steps = log.steps.step;
  ThrowError(ErrorKind::kConfig,
             "show: step {} is asked for, but the log has {}. Choose one of "
             "these with --step.",
             step,
             steps.empty()
                 ? "no step"
                 : fmt::format("steps {} to {}", steps.front(), steps.back()));
}

void SummarizeTensors(const RunLog& log, const RunSummaryOptions& options,
                      RunSummary& summary) {
  if (!options.wants_tensor) return;
  const auto& t = log.tensors;
  const auto row =
      options.step ? ChosenRow(t.step, options.step) : LastTensorRow(t);
  if (!row) RefuseStep(log, options.step.value_or(summary.last_step));
  summary.tensor_step = t.step[*row];
  const size_t count = t.names.size();
  for (size_t i = 0; i < count; ++i) {
    if (!options.wants_tensor(t.names[i])) continue;
    TensorSummary& of = summary.tensors.emplace_back();
    of.name = t.names[i];
    const auto digests = RowOf(t.digest, *row, count);
    if (!digests.empty() && digests[i] != 0) {
      of.digest = fmt::format("{:016x}", static_cast<uint64_t>(digests[i]));
    }
    for (const auto& statistic : t.statistics) {
      const auto values = RowOf(statistic, *row, count);
      of.statistics.push_back(values.empty() ? std::nan("") : values[i]);
    }
  }
  if (summary.tensors.empty()) {
    ThrowError(ErrorKind::kConfig,
               "show: none of the {} tensors of the log matches --tensors; the "
               "first is `{}`, the last `{}`. `--tensors '*'` lists all.",
               count, t.names.front(), t.names.back());
  }
}

/// Adds the parameters with the largest values of one kind.
void AddLargest(const char* title, std::string key,
                const std::vector<NamedValue>& values,
                const RunSummary& summary, Document& document) {
  if (!values.empty()) {
    document.Say("");
    document.Say(
        fmt::format("largest {} at step {}", title, *summary.parameter_step));
  }
  document::Table table{
      .key = std::move(key),
      .columns = {{.key = "name", .width = 48, .is_text = true},
                  {.key = "value", .width = 12, .format = ".6g"}},
      .indent = 2,
      .has_head = false};
  for (const NamedValue& value : values) {
    Document& row = table.rows.emplace_back();
    row.Put("name", value.name);
    row.Put("value", value.value);
  }
  document.Add(std::move(table));
}

void AddLayers(const RunSummary& summary, Document& document) {
  document::Table table{
      .key = "layers",
      .columns = {{.key = "layer", .label = "layer", .width = 7},
                  {.key = "router_entropy_nats",
                   .label = "entropy (nats)",
                   .width = 15,
                   .format = ".4f"},
                  {.key = "load_max_over_mean",
                   .label = "busiest / mean",
                   .width = 15,
                   .format = ".4f"},
                  {.key = "experts_without_tokens",
                   .label = "without tokens",
                   .width = 14},
                  {.key = "dropped_tokens", .label = "dropped", .width = 9},
                  {.key = "routing_flips", .label = "flips", .width = 9}},
      .has_head = !summary.layers.empty()};
  if (table.has_head) {
    document.Say("");
    document.Say(fmt::format("MoE layers at step {}", *summary.moe_step));
  }
  for (const LayerSummary& layer : summary.layers) {
    Document& row = table.rows.emplace_back();
    row.Put("layer", layer.layer);
    row.Put("router_entropy_nats", layer.router_entropy_nats);
    row.Put("load_max_over_mean", layer.load_max_over_mean);
    row.Put("experts_without_tokens", layer.experts_without_tokens);
    row.Put("dropped_tokens", layer.dropped_tokens);
    row.Put("routing_flips", layer.routing_flips);
  }
  document.Add(std::move(table));
}

/// The leading space sets the digest apart from the numbers.
constexpr const char* kDigestLabel = " digest";

Document TensorRow(const TensorSummary& tensor) {
  Document row;
  row.Put("name", tensor.name);
  row.Put("digest", tensor.digest);
  for (size_t i = 0; i < tensor.statistics.size(); ++i) {
    const auto& name = runlog::kTensorStatistics[i].name;
    row.Put(name, tensor.statistics[i]);
    if (std::isnan(tensor.statistics[i])) row.AddField(name, "-");
  }
  row.AddField(kDigestLabel,
               tensor.digest.empty() ? " -" : " " + tensor.digest);
  return row;
}

void AddTensors(const RunSummary& summary, Document& document) {
  document::Table table{.key = "tensors",
                        .columns = {{.key = "name", .is_text = true}},
                        .indent = 2,
                        .has_head = !summary.tensors.empty()};
  for (const size_t s : kShownStatistics) {
    const auto& name = runlog::kTensorStatistics[s].name;
    table.columns.push_back(
        {.key = name, .label = name, .width = 13, .format = ".6g"});
  }
  table.columns.push_back(
      {.key = "digest", .label = kDigestLabel, .is_text = true});
  if (table.has_head) {
    document.Say("");
    document.Say(fmt::format("tensors at step {}, in the order of computation",
                             *summary.tensor_step));
  }
  for (const TensorSummary& tensor : summary.tensors) {
    table.rows.push_back(TensorRow(tensor));
  }
  document.Add(std::move(table));
}

}  // namespace

std::optional<double> LoadMaxOverMean(const int64_t* tokens, size_t experts) {
  const std::span<const int64_t> counts(tokens, experts);
  const int64_t all =
      std::accumulate(counts.begin(), counts.end(), int64_t{0}, &SaturatingAdd);
  if (all == 0) return std::nullopt;
  return static_cast<double>(std::ranges::max(counts)) *
         static_cast<double>(experts) / static_cast<double>(all);
}

RunSummary SummarizeRun(const RunLog& log, const RunSummaryOptions& options) {
  if (options.step && !ChosenRow(log.steps.step, options.step)) {
    RefuseUnknownStep(log, *options.step);
  }
  RunSummary summary;
  summary.steps = static_cast<int64_t>(log.steps.step.size());
  summary.last_step = Last(log.steps.step).value_or(0);
  summary.loss_nats = Last(log.steps.loss_nats);
  summary.grad_norm = Last(log.steps.grad_norm);
  summary.held_out_loss_nats = Last(log.eval.loss_nats);
  CountNonfinite(log, summary);
  SummarizeParameters(log, options, summary);
  SummarizeLayers(log, options, summary);
  SummarizeTensors(log, options, summary);
  return summary;
}

Document DocumentOf(const RunSummary& summary) {
  Document document;
  document.Put("steps", summary.steps);
  document.Put("last_step", summary.last_step);
  document.Put("loss_nats", summary.loss_nats);
  document.Put("grad_norm", summary.grad_norm);
  document.Put("held_out_loss_nats", summary.held_out_loss_nats);
  document.Put("nonfinite_steps", summary.nonfinite_steps);
  document.Put("first_nonfinite_step", summary.first_nonfinite_step);
  if (summary.first_nonfinite_step) {
    document.Say("");
    document.Say(fmt::format(
        "not finite: the loss or a gradient of {} of {} steps, first at step "
        "{}",
        summary.nonfinite_steps, summary.steps, *summary.first_nonfinite_step));
  }
  document.Put("parameter_step", summary.parameter_step);
  AddLargest("gradient norms", "top_grad_norms", summary.top_grad_norms,
             summary, document);
  AddLargest("update ratios", "top_update_ratios", summary.top_update_ratios,
             summary, document);
  document.Put("moe_step", summary.moe_step);
  AddLayers(summary, document);
  document.Put("tensor_step", summary.tensor_step);
  AddTensors(summary, document);
  return document;
}

}  // namespace isoloss::report
