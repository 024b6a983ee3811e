// Reads MLflow's folder of a run, or of an experiment: mlflow,
// store/tracking/file_store.py. A metric has a file of its own, whose lines are
// `time value step`; a slash in its name makes folders.
//   mlruns/EXPERIMENT/RUN/meta.yaml, metrics/train/loss, params/lr
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"
#include "isoloss/foreign/folders.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetrics = "metrics";
constexpr const char* kMeta = "meta.yaml";

bool HoldsMetrics(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / kMetrics, error) &&
         fs::is_regular_file(folder / kMeta, error);
}

std::vector<fs::path> FilesIn(const fs::path& folder, int levels) {
  const auto is_file = [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_regular_file(error);
  };
  const auto is_folder = [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_directory(error);
  };
  std::vector<fs::path> files = EntriesOf(folder, is_file);
  if (levels == 0) return files;
  for (const fs::path& below : EntriesOf(folder, is_folder)) {
    std::ranges::move(FilesIn(below, levels - 1), std::back_inserter(files));
  }
  return files;
}

/// Adds the values of a metric. Old versions write no step, which is then 0.
void ReadMetric(const fs::path& file, const std::string& name,
                ForeignRun& run) {
  const std::string text =
      ReadTextFile(file, "Give another folder.", kMostLogBytes);
  int64_t line_number = 0;
  int64_t broken_at = 0;
  ForEachLine(text, [&](std::string_view line) {
    ++line_number;
    if (broken_at > 0 || Trimmed(line).empty()) return;
    TakeWord(line);
    const std::string_view word = TakeWord(line);
    const std::string_view step = TakeWord(line);
    const auto value = ParsePlainNumber(word);
    const auto at = step.empty() ? 0 : ParseWhole(step);
    if (!value || !at) {
      broken_at = line_number;
    } else if (*at >= 0) {
      run.Of(name).Add(*at, *value, word);
    }
  });
  if (broken_at == 0) return;
  if (broken_at == line_number) {
    run.notes.push_back(fmt::format(
        "The last line of `{}` is cut and was left out.", Printable(name)));
    return;
  }
  ThrowError(ErrorKind::kFormat,
             "{}: line {} is no `time value step`, but each line of MLflow's "
             "metrics is. Give the folder as MLflow wrote it.",
             Printable(file.string()), broken_at);
}

/// Takes numbers as settings.
void ReadParameters(const fs::path& folder, ForeignRun& run) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  constexpr size_t kMostBytes = 4096;
  for (const fs::path& file : FilesIn(folder, 0)) {
    if (fs::file_size(file, error) > kMostBytes) continue;
    const std::string text = ReadTextFile(file, "", kMostBytes);
    const auto value = ParsePlainNumber(text);
    if (value) run.settings[file.filename().string()] = *value;
  }
}

/// Takes how the run ended: `status: 4`, or by name in old versions.
void ReadStatus(const fs::path& meta, ForeignRun& run) {
  const std::string text = ReadTextFile(meta, "Give another folder.");
  ForEachLine(text, [&run](std::string_view line) {
    constexpr std::string_view kStatus = "status:";
    if (!line.starts_with(kStatus)) return;
    const std::string_view status = Trimmed(line.substr(kStatus.size()));
    if (status == "4" || status == "FAILED") run.broke_off = "status FAILED";
    if (status == "5" || status == "KILLED") run.broke_off = "status KILLED";
    if (status == "1" || status == "RUNNING") {
      run.notes.emplace_back(
          "The status is RUNNING: the run is alive, or was killed.");
    }
  });
}

ForeignRun ReadRun(const fs::path& folder) {
  constexpr int kMostSlashes = 8;  // of a name
  ForeignRun run;
  run.format = "mlflow";
  const fs::path metrics = folder / kMetrics;
  for (const fs::path& file : FilesIn(metrics, kMostSlashes)) {
    ReadMetric(file, file.lexically_relative(metrics).generic_string(), run);
  }
  ReadParameters(folder / "params", run);
  ReadStatus(folder / kMeta, run);
  return run;
}

/// Returns the folders of runs: the folder itself, those of an experiment, or
/// of all experiments.
std::vector<fs::path> RunsIn(const fs::path& folder) {
  return RunFoldersIn(folder, 2, &HoldsMetrics);
}

bool HasMetrics(const fs::path& folder) { return !RunsIn(folder).empty(); }

std::vector<ForeignRun> ReadMlflow(Source& log, std::string_view /*step*/) {
  std::vector<ForeignRun> runs;
  if (!log.is_folder()) return runs;
  const std::vector<fs::path> folders = RunsIn(log.path());
  for (const fs::path& folder : folders) {
    ForeignRun run = ReadRun(folder);
    if (run.series.empty()) continue;
    if (folders.size() > 1) run.name = folder.filename().string();
    runs.push_back(std::move(run));
  }
  if (!runs.empty()) return runs;
  ThrowError(ErrorKind::kFormat,
             "the folder holds {} runs of MLflow, but no metric with a value. "
             "Give the folder of a run that logged something.",
             folders.size());
}

}  // namespace

extern const Format kFormat_mlflow = {
    .name = "mlflow", .read = &ReadMlflow, .has_folder = &HasMetrics};

}  // namespace isoloss::foreign
