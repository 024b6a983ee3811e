// Makes runs of TensorBoard's event files.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/event_file.h"
#include "isoloss/foreign/folders.h"
#include "isoloss/foreign/format.h"

namespace isoloss::foreign {
namespace {

namespace fs = std::filesystem;

bool IsNamedByStart(const std::string& name) {
  if (name.size() < 13 || name[8] != '-') return false;
  return std::ranges::all_of(name.substr(0, 8) + name.substr(9, 4),
                             [](unsigned char c) { return std::isdigit(c); });
}

bool IsEventEntry(const fs::directory_entry& entry) {
  std::error_code error;
  const std::string name = entry.path().filename().string();
  return entry.is_regular_file(error) &&
         name.find(".tfevents.") != std::string::npos;
}

bool IsStart(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error) &&
         IsNamedByStart(entry.path().filename().string());
}

/// Returns the event files of a folder, in the order of their names, which
/// begin with the time of the start. If the folder has no event file of its
/// own, those of folders in it count that are named by the time of a start
/// (20260503-0200): torchtitan makes such a folder for each start. Links are
/// not followed.
std::vector<fs::path> EventFilesIn(const fs::path& folder) {
  std::vector<fs::path> paths = EntriesOf(folder, &IsEventEntry);
  if (!paths.empty()) return paths;
  for (const fs::path& start : EntriesOf(folder, &IsStart)) {
    std::ranges::move(EntriesOf(start, &IsEventEntry),
                      std::back_inserter(paths));
  }
  return paths;
}

bool HasEventFiles(const fs::path& folder) {
  return !EventFilesIn(folder).empty();
}

EventFile ReadFolder(const fs::path& folder) {
  std::vector<EventFile> files;
  for (const fs::path& path : EventFilesIn(folder)) {
    files.push_back(ReadEventFile(path));
  }
  return files.size() == 1 ? std::move(files.front()) : MergeEventFiles(files);
}

/// Makes a series for each tag. Values are FP32, so no digit was rounded away.
/// Points with a negative step are left out, and noted. So is what Megatron-LM
/// writes again over the samples seen, which are no steps.
ForeignRun RunOfEvents(const EventFile& file) {
  ForeignRun run;
  run.format = "tensorboard";
  int64_t negative = 0;
  for (const auto& [tag, points] : file.series) {
    constexpr std::string_view kOverSamples = " vs samples";
    if (tag.ends_with(kOverSamples) &&
        file.series.contains(tag.substr(0, tag.size() - kOverSamples.size()))) {
      continue;
    }
    Series& series = run.Of(tag);
    // Nine digits are all digits of an FP32 value.
    series.digits.significant = 9;
    for (const EventScalar& point : points) {
      if (point.step < 0) {
        ++negative;
      } else {
        series.Add(point.step, point.value);
      }
    }
  }
  if (!file.note.empty()) run.notes.push_back(file.note);
  if (negative > 0) {
    run.notes.push_back(fmt::format(
        "Values with a negative step were left out: {}.", negative));
  }
  return run;
}

std::vector<ForeignRun> ReadEvents(Source& log,
                                   std::string_view /*step_name*/) {
  EventFile file;
  if (log.is_folder()) {
    file = ReadFolder(log.path());
  } else if (!LooksLikeEventFile(log.head())) {
    return {};
  } else {
    file = log.path().empty() ? ParseEventFile(log.bytes(), "the log")
                              : ReadEventFile(log.path());
  }
  std::vector<ForeignRun> runs{RunOfEvents(file)};
  if (std::ranges::any_of(runs[0].series, [](const Series& series) {
        return !series.step.empty();
      })) {
    return runs;
  }
  ThrowError(ErrorKind::kFormat,
             "{} records of events hold no scalar, as of a run that logged "
             "nothing. Give the event file of a training.",
             file.records);
}

}  // namespace

extern const Format kFormat_tensorboard = {
    .name = "tensorboard", .read = &ReadEvents, .has_folder = &HasEventFiles};

}  // namespace isoloss::foreign
