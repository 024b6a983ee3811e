#include "isoloss/layouts/recording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/operations/operation_file.h"

namespace isoloss::layouts {
namespace {

namespace fs = std::filesystem;
using operations::OperationFile;

/// More files are taken for a wrong folder.
constexpr size_t kMostFiles = 4096;
constexpr int64_t kMostRanks = 4096;

/// Returns the run's name of "NAME.rank-R.operations-STEP.h5"; "" for others.
std::string RunOf(const fs::path& path) {
  const std::string name = path.filename().string();
  const size_t operations = name.rfind(".operations-");
  if (!name.ends_with(".h5") || operations == std::string::npos) return "";
  const size_t rank = name.rfind(".rank-", operations);
  return rank == std::string::npos ? "" : name.substr(0, rank);
}

std::vector<fs::path> FilesIn(const fs::path& folder, const std::string& run) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string of = RunOf(it->path());
    if (!of.empty() && (run.empty() || of == run)) found.push_back(it->path());
  }
  std::ranges::sort(found);
  return found;
}

[[noreturn]] void RejectRank(const OperationFile& file,
                             const std::string& found,
                             const std::string& rule) {
  ThrowError(ErrorKind::kFormat,
             "{}: {}, but {}. Give the files of all ranks of one run.",
             file.path, found, rule);
}

/// Checks that each step has each rank once.
void CheckRanks(const Recording& recording) {
  const OperationFile& head = recording.files.front();
  if (head.ranks > kMostRanks) {
    RejectRank(head, fmt::format("it is of {} ranks", head.ranks),
               fmt::format("at most {} are compared", kMostRanks));
  }
  for (const OperationFile& file : recording.files) {
    if (file.run != head.run) {
      RejectRank(
          file, fmt::format("it is of run `{}`", Printable(file.run)),
          fmt::format("{} is of run `{}`", head.path, Printable(head.run)));
    }
    if (file.ranks != head.ranks || file.data_ranks != head.data_ranks ||
        file.mesh != head.mesh) {
      RejectRank(file,
                 fmt::format("it is of {} ranks, {} with other tokens, mesh "
                             "`{}`",
                             file.ranks, file.data_ranks, Printable(file.mesh)),
                 fmt::format("{} is of {}, {}, `{}`", head.path, head.ranks,
                             head.data_ranks, Printable(head.mesh)));
    }
    if (file.rank >= file.ranks || file.data_rank >= file.data_ranks ||
        file.ranks % file.data_ranks != 0) {
      RejectRank(
          file,
          fmt::format("rank {} of {} has part {} of {} of the batch", file.rank,
                      file.ranks, file.data_rank, file.data_ranks),
          "both count from 0, and each part has equally many ranks");
    }
  }
  for (const int64_t step : recording.Steps()) {
    std::set<int64_t> ranks;
    const std::vector<size_t> places = recording.Of(step);
    for (const size_t f : places) ranks.insert(recording.files[f].rank);
    if (ranks.size() != places.size()) {
      RejectRank(recording.files[places.front()],
                 fmt::format("step {} has {} files", step, places.size()),
                 fmt::format("only {} ranks", ranks.size()));
    }
    std::vector<int64_t> missing;
    for (int64_t rank = 0; rank < head.ranks && missing.size() < 8; ++rank) {
      if (!ranks.contains(rank)) missing.push_back(rank);
    }
    if (missing.empty()) continue;
    RejectRank(recording.files[places.front()],
               fmt::format("step {} has files of {} of {} ranks", step,
                           ranks.size(), head.ranks),
               fmt::format("rank {} is missing", fmt::join(missing, ", ")));
  }
}

}  // namespace

std::vector<int64_t> Recording::Steps() const {
  std::set<int64_t> steps;
  for (const OperationFile& file : files) steps.insert(file.step);
  return {steps.begin(), steps.end()};
}

std::vector<size_t> Recording::Of(int64_t step) const {
  std::vector<size_t> places;
  for (size_t f = 0; f < files.size(); ++f) {
    if (files[f].step == step) places.push_back(f);
  }
  return places;
}

std::string Recording::Layout() const {
  const OperationFile& head = files.front();
  std::string text =
      head.ranks == 1 ? "1 rank" : fmt::format("{} ranks", head.ranks);
  if (!head.mesh.empty()) {
    text += fmt::format(" ({})", Printable(head.mesh));
  } else if (head.data_ranks != head.ranks) {
    text += fmt::format(" (data ranks: {})", head.data_ranks);
  }
  return text;
}

std::vector<fs::path> FilesOf(const fs::path& place) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(place, error)) {
    files = FilesIn(place, "");
  } else if (!RunOf(place).empty() || place.extension() == ".toml") {
    return {place};
  } else {
    fs::path run = place;
    if (run.extension() == ".h5") run.replace_extension();
    const fs::path folder = run.parent_path();
    files = FilesIn(folder.empty() ? "." : folder, run.filename().string());
  }
  if (files.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: has no files NAME.rank-R.operations-STEP.h5, but a layout "
               "is given by those of one run. Name their folder, or the run as "
               "FOLDER/NAME.",
               place.string());
  }
  if (files.size() > kMostFiles) {
    ThrowError(ErrorKind::kConfig,
               "{}: has {} files of operations, but at most {} are read. Put "
               "those of a few steps into a folder of their own.",
               place.string(), files.size(), kMostFiles);
  }
  for (const fs::path& file : files) {
    if (RunOf(file) == RunOf(files[0])) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: has files of the runs `{}` and `{}`, but a layout is one "
               "run. Name one of them as FOLDER/NAME.",
               place.string(), Printable(RunOf(files[0])),
               Printable(RunOf(file)));
  }
  return files;
}

Recording ReadRecording(const fs::path& place) {
  Recording recording = {.name = place.string()};
  for (const fs::path& path : FilesOf(place)) {
    recording.files.push_back(operations::ReadOperations(path));
  }
  std::ranges::sort(recording.files, [](const auto& a, const auto& b) {
    return std::pair(a.step, a.rank) < std::pair(b.step, b.rank);
  });
  CheckRanks(recording);
  std::vector<const OperationFile*> step;
  for (const size_t f : recording.Of(recording.files.front().step)) {
    step.push_back(&recording.files[f]);
  }
  recording.mesh = operations::MeshOf(step);
  return recording;
}

}  // namespace isoloss::layouts
