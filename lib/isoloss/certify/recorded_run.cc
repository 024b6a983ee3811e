#include "isoloss/certify/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/hdf5/tree.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/logs/open_log.h"
#include "isoloss/operations/operation_file.h"

namespace isoloss::certify {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRank = ".rank-";
constexpr std::string_view kOperations = ".operations-";
constexpr const char* kRecorder = "isoloss-recorder";

/// Parses a number that ends a name; it is cut off with the word before it.
std::optional<int64_t> CutNumber(std::string_view word, std::string& name) {
  const size_t at = name.rfind(word);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = name.data() + at + word.size();
  const char* end = name.data() + name.size();
  int64_t number = -1;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || stop != end || number < 0) return std::nullopt;
  name.erase(at);
  return number;
}

/// Says what the name of a file tells of it.
struct FileName {
  std::string run;
  int64_t rank = kAllRanks;
  std::optional<int64_t> step = {};  ///< of an operation file
};

FileName NameOf(const fs::path& path) {
  FileName found = {.run = path.filename().string()};
  for (const std::string_view ending : {".h5", ".partial", ".journal"}) {
    if (found.run.ends_with(ending)) {
      found.run.erase(found.run.size() - ending.size());
    }
  }
  std::string cut = found.run;
  const auto step = CutNumber(kOperations, cut);
  const auto rank = CutNumber(kRank, cut);
  if (!rank) return found;
  return {.run = cut, .rank = *rank, .step = step};
}

fs::path FolderOf(const fs::path& path) {
  std::error_code error;
  const fs::path folder =
      path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path whole = fs::weakly_canonical(folder, error);
  return error ? folder : whole;
}

/// Returns whether a file says that it holds operations, whatever its name.
bool HoldsOperations(const fs::path& path) {
  if (path.extension() == ".toml") return true;
  if (logs::IsForeignLog(path) || logs::IsJournal(path)) return false;
  if (NameOf(path).step) return true;
  if (hdf5::KindOf(path) != nullptr) return false;
  try {
    const hdf5::Tree tree(operations::ReadWholeFile(path), path.string(),
                          hdf5::Part::kAttributes);
    return tree.root().Attribute("operations_version") != nullptr;
  } catch (const Error&) {
    return false;  // whoever reads it as a log says what is wrong
  }
}

/// Returns the files of a folder that may be of a run, by name.
std::vector<fs::path> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files = logs::LogsIn(folder);
  std::erase_if(files, [](const fs::path& file) {
    return logs::IsNamedAsOther(file) || logs::IsPartial(file);
  });
  if (files.empty()) {
    ThrowError(ErrorKind::kConfig,
               "certify: {} is a folder without logs of a run. Give the logs.",
               Printable(folder.string()));
  }
  return files;
}

class Collector {
 public:
  void Add(const fs::path& path) {
    if (HoldsOperations(path)) {
      operations_.push_back(path);
      return;
    }
    const FileName name = NameOf(path);
    RecordedRun& run = RunOf({FolderOf(path), name.run}, path);
    if (run.logs.contains(name.rank)) {
      ThrowError(ErrorKind::kConfig,
                 "certify: {} is given twice, or two files are of one rank of "
                 "the run {}. A run proves nothing against itself: give the "
                 "log of another run.",
                 Printable(path.string()), Printable(name.run));
    }
    logs::OpenedLog opened = logs::OpenLog(path);
    run.logs[name.rank] = {Printable(path.string()), std::move(opened.log)};
  }

  /// Operation files are assigned once all logs are known.
  std::vector<RecordedRun> Finish() {
    for (const auto& [key, place] : places_) FindBeside(key, runs_[place]);
    for (const fs::path& path : operations_) Assign(path);
    return std::move(runs_);
  }

 private:
  using Key = std::pair<fs::path, std::string>;

  RecordedRun& RunOf(const Key& key, const fs::path& path) {
    const auto [place, is_new] = places_.try_emplace(key, runs_.size());
    if (is_new) runs_.push_back({.name = Printable(path.string())});
    return runs_[place->second];
  }

  static void FindBeside(const Key& key, RecordedRun& run) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(key.first, error)) {
      const FileName name = NameOf(entry.path());
      if (!name.step || name.run != key.second ||
          entry.path().extension() != ".h5" || !entry.is_regular_file(error)) {
        continue;
      }
      run.operations[{*name.step, name.rank}] = entry.path();
    }
  }

  /// The name tells the run. Else the file itself does.
  void Assign(const fs::path& path) {
    const FileName name = NameOf(path);
    const Key key = {FolderOf(path), name.run};
    if (name.step && (places_.contains(key) || !has_logs())) {
      RunOf(key, path).operations[{*name.step, name.rank}] = path;
      return;
    }
    const operations::OperationFile file = operations::ReadOperations(path);
    std::vector<size_t> fitting;
    for (const auto& [other, place] : places_) {
      if (other.second == file.run) fitting.push_back(place);
    }
    if (fitting.size() > 1 || (fitting.empty() && has_logs())) {
      ThrowError(ErrorKind::kConfig,
                 "certify: {} holds operations of run `{}`, which is the name "
                 "of {} of the given logs, but must be that of one. Put it "
                 "beside its log, with the name that the recorder gave it.",
                 Printable(path.string()), Printable(file.run),
                 fitting.empty() ? "none" : "several");
    }
    RecordedRun& run = fitting.empty() ? RunOf({FolderOf(path), file.run}, path)
                                       : runs_[fitting.front()];
    run.operations[{file.step, file.rank}] = path;
  }

  bool has_logs() const {
    return std::ranges::any_of(
        runs_, [](const RecordedRun& run) { return !run.logs.empty(); });
  }

  std::map<Key, size_t> places_;
  std::vector<RecordedRun> runs_;
  std::vector<fs::path> operations_;
};

}  // namespace

bool RecordedRun::has_printed_log() const {
  if (logs.empty()) return false;
  const std::string& format = log().provenance.origin.format;
  return !format.empty() && format != kRecorder;
}

std::vector<int64_t> RecordedRun::MissingRanks() const {
  std::vector<int64_t> missing;
  if (logs.empty() || logs.contains(kAllRanks)) return missing;
  constexpr int64_t kMostNamed = 1024;
  const int64_t ranks = std::min(log().provenance.ranks, kMostNamed);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (!logs.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::vector<int64_t> RecordedRun::OperationSteps() const {
  std::set<int64_t> steps;
  for (const auto& [place, path] : operations) steps.insert(place.step);
  return {steps.begin(), steps.end()};
}

std::vector<RecordedRun> ReadRecordedRuns(const std::vector<fs::path>& paths) {
  Collector collector;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error) || logs::IsForeignLog(path)) {
      collector.Add(path);
      continue;
    }
    for (const fs::path& file : FilesIn(path)) collector.Add(file);
  }
  return collector.Finish();
}

}  // namespace isoloss::certify
