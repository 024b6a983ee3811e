#include "isoloss/foreign/json_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/json_lines.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

std::optional<int64_t> StepKey(const std::string& key) {
  const auto step = ParseWhole(key);
  return step && *step >= 0 ? step : std::nullopt;
}

// ---- Hugging Face ----------------------------------------------------------

/// Reads log_history, which src/transformers/trainer.py writes. A row has the
/// mean loss since the row before, rounded to 4 decimals by most versions.
ForeignRun ReadTrainerState(const json& rows) {
  ForeignRun run;
  run.format = "hugging_face";
  int64_t filtered = 0;
  for (const json& row : rows) {
    if (!row.is_object() || !row.contains("step")) continue;
    const auto step = WholeOf(row["step"]);
    if (!step || *step < 0) continue;
    const auto norm =
        row.contains("grad_norm") ? NumberOf(row["grad_norm"]) : std::nullopt;
    for (const auto& [name, value] : row.items()) {
      // The last row has means over the whole run.
      if (name == "step" || name == "total_flos" || name == "train_loss" ||
          name == "train_runtime") {
        continue;
      }
      const auto number = NumberOf(value);
      if (!number && name == "loss") {
        run.Of(name).AddWritten(*step, std::nullopt, value.dump());
      }
      if (!number) continue;
      // The trainer's NaN filter writes 0 for a window of only NaN.
      const bool is_filtered =
          name == "loss" && *number == 0 && norm && std::isnan(*norm);
      filtered += is_filtered ? 1 : 0;
      AddShortest(run.Of(name), *step, is_filtered ? std::nan("") : *number);
    }
  }
  if (run.series.empty()) {
    ThrowError(ErrorKind::kFormat,
               "log_history has {} rows, but none with a step and a number. "
               "Give trainer_state.json of a later checkpoint.",
               rows.size());
  }
  Series& loss = run.Of("loss");
  if (SpacingOf(loss.step).stride > 1) {
    loss.averaging = Averaging::kIntervalMean;
  }
  if (filtered > 0) {
    run.notes.push_back(fmt::format(
        "{} rows have loss 0.0 and gradient norm NaN. The trainer's NaN filter "
        "reports this where every step of the window was NaN, so these count "
        "as NaN.",
        filtered));
  }
  run.notes.emplace_back(
      "The trainer replaces a step loss that is NaN by the window's mean "
      "(logging_nan_inf_filter). A finite loss is no proof of finite steps.");
  return run;
}

/// Adds what the state tells beside its rows.
void AddBatches(const json& root, ForeignRun& run) {
  constexpr const char* kTokens = "num_input_tokens_seen";
  const auto number = [&root](const char* name) {
    return root.contains(name) ? NumberOf(root[name]).value_or(0) : 0;
  };
  const auto last = static_cast<int64_t>(number("global_step"));
  if (number(kTokens) > 0 && last > 0 && run.Find(kTokens) == nullptr) {
    AddShortest(run.Of(kTokens), last, number(kTokens));
  }
  // This is the batch of one device. Runs may have equal batches on different
  // numbers of devices.
  if (const double batch = number("train_batch_size"); batch > 0) {
    run.settings["train_batch_size of trainer_state"] = batch;
  }
}

/// Returns the last step that is due, as told or by the epochs; 0 if not known.
int64_t PlanOfTrainer(const json& root) {
  const auto number = [&root](const char* name) {
    return root.contains(name) ? NumberOf(root[name]).value_or(0) : 0;
  };
  const auto told =
      root.contains("max_steps") ? WholeOf(root["max_steps"]) : std::nullopt;
  if (told && *told > 0) return *told;
  // An epoch ends before 1 if the trainer leaves out its last batches.
  constexpr double kWhole = 0.95;
  const double epochs = number("num_train_epochs");
  const double epoch = number("epoch");
  const double step = number("global_step");
  const bool ended = !(epoch > 0) || !(step > 0) || epoch >= kWhole * epochs;
  if (ended) return 0;
  return static_cast<int64_t>(
      std::min(std::floor(step * epochs / epoch), 0x1p53));
}

// ---- Megatron --------------------------------------------------------------

/// Reads a number, NaN or an infinity that the file has as a number. The text
/// "nan" is no sample.
std::optional<double> SampleOf(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value != "NaN" && value != "Infinity" && value != "-Infinity") {
    return std::nullopt;
  }
  return NumberOf(value);
}

/// Reads {start_step, end_step, step_interval, values}: values is a list (2023,
/// 2024) or an object keyed by step.
bool AddGoldenMetric(const std::string& name, const json& metric,
                     ForeignRun& run) {
  if (!metric.is_object() || !metric.contains("values")) return false;
  const json& values = metric["values"];
  Series& series = run.Of(name);
  if (metric.contains("end_step")) {
    run.steps_planned =
        std::max(run.steps_planned, WholeOf(metric["end_step"]).value_or(0));
  }
  if (values.is_object()) {
    for (const auto& [key, value] : values.items()) {
      const auto step = StepKey(key);
      const auto number = SampleOf(value);
      if (step && number) AddShortest(series, *step, *number);
      if (step) run.steps_planned = std::max(run.steps_planned, *step);
    }
    return true;
  }
  if (!values.is_array()) return false;
  const auto interval = metric.contains("step_interval")
                            ? WholeOf(metric["step_interval"])
                            : std::nullopt;
  constexpr int64_t kMostSteps = int64_t{1} << 40;
  const int64_t stride =
      interval && *interval >= 1 && *interval < 1'000'000 ? *interval : 1;
  int64_t step = 1;
  for (const json& value : values) {
    const auto number = SampleOf(value);
    if (step >= kMostSteps) break;
    if (number) AddShortest(series, step, *number);
    run.steps_planned = std::max(run.steps_planned, step);
    step += stride;
  }
  return true;
}

/// Reads {lm loss, elapsed time per iteration (ms), ...} of one step. Keys
/// count steps from 0.
void AddBridgeStep(int64_t step, const json& fields, ForeignRun& run) {
  for (const auto& [name, value] : fields.items()) {
    if (const auto number = SampleOf(value)) {
      AddShortest(run.Of(name), step + 1, *number);
    }
  }
}

bool HasLoss(const ForeignRun& run) {
  return std::ranges::any_of(run.series, [](const Series& series) {
    return series.quantity == Quantity::kLoss && !series.step.empty();
  });
}

std::optional<ForeignRun> ReadGolden(const json& root) {
  ForeignRun golden;
  golden.format = "megatron_golden";
  ForeignRun bridge;
  bridge.format = "megatron_bridge_golden";
  bridge.step_base = 0;
  for (const auto& [name, value] : root.items()) {
    if (AddGoldenMetric(name, value, golden)) continue;
    const auto step = StepKey(name);
    if (!step || !value.is_object()) continue;
    AddBridgeStep(*step, value, bridge);
    bridge.steps_planned = std::max(bridge.steps_planned, *step + 1);
  }
  const Series* empty = golden.Main(Quantity::kLoss);
  if (empty != nullptr && empty->step.empty() && !HasLoss(bridge)) {
    ThrowError(ErrorKind::kFormat,
               "`{}` has `values`, as golden values of Megatron do, but none "
               "is a number at a step. Give the file of a run that was "
               "recorded.",
               empty->name);
  }
  if (HasLoss(golden)) return golden;
  if (HasLoss(bridge)) return bridge;
  return std::nullopt;
}

// ---- MLPerf ----------------------------------------------------------------

/// Reads {"<name>": {"Benchmark", "BS", ..., "Epochs to converge": [..]}}.
std::vector<ForeignRun> ReadReferencePoints(const json& root) {
  std::vector<ForeignRun> runs;
  for (const auto& [name, entry] : root.items()) {
    if (!entry.is_object() || !entry.contains("Benchmark")) continue;
    for (const auto& [key, values] : entry.items()) {
      if (!key.ends_with("to converge") || !values.is_array()) continue;
      ForeignRun run;
      run.name = name;
      run.format = "mlperf_rcp";
      run.step_unit = "reference run";
      int64_t place = 0;
      for (const json& value : values) {
        if (value.is_number()) {
          AddShortest(run.Of(key), ++place, value.get<double>());
        }
      }
      if (run.series.empty()) {
        ThrowError(ErrorKind::kFormat,
                   "reference `{}` holds no value yet: its list `{}` is empty. "
                   "Give the file of a reference that was measured.",
                   name, key);
      }
      run.notes.emplace_back(
          "The file says when reference runs reached the target. It holds no "
          "loss curve.");
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace

std::vector<ForeignRun> ReadJsonLog(std::string_view text,
                                    std::string_view step_name) {
  const json root = ParseJson(text);
  if (root.is_array()) return ReadJsonRows(root, step_name);
  if (!root.is_object()) return {};
  if (root.contains("log_history") && root["log_history"].is_array()) {
    ForeignRun run = ReadTrainerState(root["log_history"]);
    run.steps_planned = PlanOfTrainer(root);
    AddBatches(root, run);
    return {std::move(run)};
  }
  if (auto golden = ReadGolden(root)) return {std::move(*golden)};
  std::vector<ForeignRun> points = ReadReferencePoints(root);
  if (!points.empty()) return points;
  ThrowError(ErrorKind::kFormat,
             "the file is a JSON object with {} keys, but none of the layouts "
             "that hold a loss: trainer_state.json (log_history), golden "
             "values of Megatron (metrics with values, or steps with lm loss), "
             "MLPerf's reference convergence points. Give the log of a "
             "training run.",
             root.size());
}

}  // namespace isoloss::foreign
