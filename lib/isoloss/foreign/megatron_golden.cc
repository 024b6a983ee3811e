// Reads golden values of Megatron-LM, NeMo and Megatron-Bridge, in all layouts
// since 2023.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "isoloss/base/error.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

std::optional<int64_t> StepKey(const std::string& key) {
  const auto step = ParseWhole(key);
  return step && *step >= 0 ? step : std::nullopt;
}

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

std::vector<ForeignRun> ReadGolden(Source& log,
                                   std::string_view /*step_name*/) {
  const json& root = log.json();
  if (!root.is_object()) return {};
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
  if (HasLoss(golden)) return {std::move(golden)};
  if (HasLoss(bridge)) return {std::move(bridge)};
  return {};
}

}  // namespace

extern const Format kFormat_megatron_golden = {.name = "megatron_golden",
                                               .read = &ReadGolden};

}  // namespace isoloss::foreign
