// Reads MLPerf's reference convergence points.
#include <fmt/format.h>

#include "isoloss/base/error.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

/// Reads {"<name>": {"Benchmark", "BS", ..., "Epochs to converge": [..]}}.
std::vector<ForeignRun> ReadReferencePoints(Source& log,
                                            std::string_view /*step_name*/) {
  const json& root = log.json();
  if (!root.is_object()) return {};
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

extern const Format kFormat_mlperf_rcp = {.name = "mlperf_rcp",
                                          .read = &ReadReferencePoints};

}  // namespace isoloss::foreign
