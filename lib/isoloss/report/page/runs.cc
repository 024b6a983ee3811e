#include "isoloss/report/page/runs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "isoloss/report/live_view.h"

namespace isoloss::report {
namespace {

using document::Json;

using runlog::StepColumns;

constexpr size_t kMostEvents = 20;
constexpr size_t kMostEventBytes = 300;

/// Calls visit(name, column) for each curve that the log has.
template <typename Visit>
void ForEachSeries(const StepColumns& steps, const Visit& visit) {
  const auto visit_if = [&](const char* name, const auto& column) {
    if (!column.empty()) visit(name, column);
  };
  visit_if("loss_nats", steps.loss_nats);
  visit_if("grad_norm", steps.grad_norm);
  visit_if("expert_load_max_over_mean", steps.expert_load_max_over_mean);
  visit_if("dead_experts", steps.dead_experts);
  visit_if("lr", steps.lr);
}

size_t Points(size_t steps, int64_t bin) {
  const auto width = static_cast<size_t>(bin);
  return (steps + width - 1) / width;
}

/// Returns means of `bin` values each; the last mean is of the rest.
template <typename T>
std::vector<double> Thinned(const std::vector<T>& values, int64_t bin) {
  std::vector<double> means;
  means.reserve(Points(values.size(), bin));
  const auto width = static_cast<size_t>(bin);
  for (size_t first = 0; first < values.size(); first += width) {
    const size_t end = std::min(values.size(), first + width);
    double sum = 0;
    for (size_t i = first; i < end; ++i) sum += static_cast<double>(values[i]);
    means.push_back(sum / static_cast<double>(end - first));
  }
  return means;
}

bool IsRegular(const std::vector<int64_t>& step) {
  for (size_t i = 2; i < step.size(); ++i) {
    if (step[i] - step[i - 1] != step[1] - step[0]) return false;
  }
  return true;
}

/// A list of steps takes as much room as two curves.
constexpr size_t kListWeight = 2;

size_t Columns(const StepColumns& steps) {
  size_t columns = IsRegular(steps.step) ? 0 : kListWeight;
  ForEachSeries(steps, [&](auto&&...) { ++columns; });
  return columns;
}

/// Returns the first step of each point.
Json StepJson(const std::vector<int64_t>& step, int64_t bin) {
  const auto width = static_cast<size_t>(bin);
  if (IsRegular(step)) {
    const int64_t stride = step.size() > 1 ? step[1] - step[0] : 1;
    return {{"first", step.empty() ? 1 : step.front()},
            {"stride", stride * bin},
            {"count", Points(step.size(), bin)}};
  }
  Json list = Json::array();
  for (size_t i = 0; i < step.size(); i += width) list.push_back(step[i]);
  return {{"list", std::move(list)}};
}

Json HeldOutJson(const runlog::EvalColumns& eval, size_t most) {
  Json json{{"step", Json::array()}, {"loss_nats", Json::array()}};
  const size_t count = std::min(eval.step.size(), eval.loss_nats.size());
  for (const size_t row : SpreadRows(count, most)) {
    json["step"].push_back(eval.step[row]);
    json["loss_nats"].push_back(ShortNumber(eval.loss_nats[row]));
  }
  return json;
}

/// Returns the last events.
Json EventsJson(const std::vector<runlog::Event>& events, PageBudget& budget) {
  Json list = Json::array();
  const size_t first = events.size() - std::min(events.size(), kMostEvents);
  for (const runlog::Event& event : std::span(events).subspan(first)) {
    list.push_back({{"kind", budget.Text(event.kind, kMostEventBytes)},
                    {"text", budget.Text(event.text, kMostEventBytes)}});
  }
  return list;
}

/// Returns "finished", "aborted" or "interrupted".
const char* StateName(const runlog::RunLog& log) {
  const RunState state = StateOf(log, /*has_journal=*/false);
  if (state == RunState::kAborted) return "aborted";
  if (state == RunState::kInterrupted) return "interrupted";
  return "finished";
}

}  // namespace

int64_t CurveBin(const std::vector<PageArm>& arms) {
  const auto values = [&arms](int64_t bin) {
    size_t sum = 0;
    for (const PageArm& arm : arms) {
      for (const PageRun& run : arm.runs) {
        const StepColumns& steps = run.log->steps;
        sum += Points(steps.step.size(), bin) * Columns(steps);
      }
    }
    return sum;
  };
  // Points that are not full may make the bin a little larger than this.
  auto bin = static_cast<int64_t>((values(1) + kMostCurveValues - 1) /
                                  kMostCurveValues);
  bin = std::max<int64_t>(bin, 1);
  while (values(bin) > kMostCurveValues) ++bin;
  return bin;
}

Json RunJson(const PageRun& run, int64_t bin, size_t most_held_out,
             PageBudget& budget) {
  const runlog::RunLog& log = *run.log;
  Json series = Json::object();
  ForEachSeries(log.steps, [&](const char* name, const auto& column) {
    series[name] = Float32Base64(Thinned(column, bin));
  });
  Json json{{"seed", log.provenance.seed},
            {"file", budget.Text(run.file)},
            {"complete", log.provenance.complete},
            {"state", StateName(log)},
            {"recorded_steps", log.steps.step.size()},
            {"step", StepJson(log.steps.step, bin)},
            {"bin", bin},
            {"series", std::move(series)},
            {"held_out", HeldOutJson(log.eval, most_held_out)}};
  budget.Take(json);
  json["events"] = EventsJson(log.events, budget);
  return json;
}

}  // namespace isoloss::report
