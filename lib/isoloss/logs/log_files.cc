#include "isoloss/logs/log_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "isoloss/base/printable.h"
#include "isoloss/foreign/run_log_of.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/recorder.h"

namespace isoloss::logs {
namespace {

namespace fs = std::filesystem;
using hdf5::FileKind;

/// Returns the kind that a file's name tells, as commands give it:
/// <run>.probe.h5 or <run>.dump-3.h5. Null means that the name tells nothing.
const FileKind* NamedKind(const fs::path& file) {
  const std::string kind = file.stem().extension().string();
  if (kind == ".probe") return &hdf5::kProbeLogFile;
  if (kind.starts_with(".dump-")) return &hdf5::kTensorDumpFile;
  return nullptr;
}

compare::Run ReadRun(const fs::path& file) {
  return {Printable(file.string()),
          OnOneLine([](const fs::path& log) { return runlog::ReadRunLog(log); },
                    file)};
}

/// Returns nothing if the file is of another kind. A file that can't be read
/// may be a run's, so it is never passed over.
std::optional<compare::Run> ReadIfRun(const fs::path& file) {
  try {
    return ReadRun(file);
  } catch (const hdf5::WrongKindError&) {
    return std::nullopt;
  }
}

/// Collects logs as they are read, and keeps in memory only what `keep` asks
/// for.
class FoundRuns {
 public:
  explicit FoundRuns(Keep keep) : keep_(keep) {}

  void Add(compare::Run&& run) {
    runs_.push_back(std::move(run));
    if (keep_ == Keep::kForPrecision) DropBeside(runs_.size() - 1);
  }
  std::vector<compare::Run>& runs() { return runs_; }

 private:
  void DropBeside(size_t place) {
    const runlog::RunLog& log = runs_[place].log;
    if (!log.provenance.Knows(runlog::Fact::kExperiment) ||
        log.tensors.step.empty())
      return;
    const auto [kept, is_first] = kept_.try_emplace(log.provenance.arm, place);
    if (is_first) return;
    if (log.provenance.seed < runs_[kept->second].log.provenance.seed) {
      std::swap(kept->second, place);
    }
    compare::DropTensors(runs_[place]);
  }

  Keep keep_;
  std::vector<compare::Run> runs_;
  std::map<std::string, size_t> kept_;  ///< by arm: whose /tensors stay
};

/// Names on stderr the runs of the folder that have not finished.
void NameUnfinished(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& file = entry->path();
    const bool is_partial = file.extension() == ".h5" && IsPartial(file);
    if (!is_partial && file.extension() != ".journal") continue;
    const auto run = runlog::RunPaths::Of(file);
    if (run.name.find("-seed") == std::string::npos) continue;
    std::error_code unknown;
    if (!fs::exists(run.Log(), unknown)) names.insert(run.name);
  }
  if (names.empty()) return;
  fmt::print(stderr,
             "isoloss: warning: {}: left out, since the run has not finished: "
             "{}.\n",
             Printable(folder.string()),
             Printable(fmt::format("{}", fmt::join(names, ", "))));
}

void ReadFolder(const fs::path& folder, FoundRuns& runs) {
  const size_t before = runs.runs().size();
  size_t unfinished = 0;
  for (const fs::path& file : LogsIn(folder)) {
    unfinished += IsPartial(file) ? 1 : 0;
    if (IsPartial(file) || IsNamedAsOther(file)) continue;
    if (auto run = ReadIfRun(file)) runs.Add(std::move(*run));
  }
  if (runs.runs().size() == before) {
    ThrowError(ErrorKind::kConfig,
               "{}: the folder holds 0 run logs (NAME.h5) and {} of unfinished "
               "runs (NAME.partial.h5), but at least 1 is needed, or logs of "
               "another program (NAME.log, .csv, .jsonl). Give another folder, "
               "or the logs.",
               folder.string(), unfinished);
  }
  NameUnfinished(folder);
}

/// Finds files that are named like other programs' logs, in a folder without
/// logs of isoloss.
std::vector<fs::path> ForeignLogsIn(const fs::path& folder) {
  constexpr std::string_view kEndings[] = {".log",   ".csv", ".tsv", ".json",
                                           ".jsonl", ".txt", ".out"};
  std::vector<fs::path> files;
  std::error_code error;
  if (!LogsIn(folder).empty()) return files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& file = entry->path();
    if (std::ranges::count(kEndings, file.extension().string()) != 0 &&
        !file.filename().string().starts_with(".") && IsForeignLog(file)) {
      files.push_back(file);
    }
  }
  std::ranges::sort(files);
  return files;
}

/// The folder is the arm of its logs, with a log for each seed, unless their
/// names tell several arms.
std::vector<ArmPath> InFolder(const ArmPath& given) {
  std::vector<fs::path> files = ForeignLogsIn(given.path);
  std::set<std::string> arms;
  bool seeds = true;
  for (const fs::path& file : files) {
    const auto named = foreign::SplitName(file.stem().string());
    arms.insert(named.arm);
    seeds = seeds && named.seed >= 0;
  }
  std::string arm = given.arm;
  if (arm.empty() && !(seeds && arms.size() > 1)) {
    const fs::path whole = fs::absolute(given.path).lexically_normal();
    arm = (whole.has_filename() ? whole : whole.parent_path())
              .filename()
              .string();
  }
  std::vector<ArmPath> logs;
  for (fs::path& file : files) logs.push_back({arm, std::move(file)});
  return logs;
}

/// Refuses ARM=PATH for logs of isoloss, which name their arms.
void RefuseArm(const ArmPath& given) {
  if (given.arm.empty()) return;
  ThrowError(
      ErrorKind::kConfig,
      "{}: the arm `{}` is given, but logs that isoloss makes tell their "
      "own. Give the path alone.",
      Printable(given.path.string()), Printable(given.arm));
}

/// Returns the files of `kind` in the folder. Files whose name tells the kind
/// are not opened. Files that can't be read are among them, so that their
/// reader refuses them.
std::vector<fs::path> FilesOfKind(const fs::path& folder,
                                  const FileKind& kind) {
  std::vector<fs::path> files;
  for (const fs::path& file : LogsIn(folder)) {
    if (IsPartial(file)) continue;
    const FileKind* found = NamedKind(file);
    if (found == nullptr) found = hdf5::KindOf(file);
    if (found == nullptr || found->version == kind.version) {
      files.push_back(file);
    }
  }
  return files;
}

std::vector<fs::path> Expand(const std::vector<fs::path>& paths,
                             const FileKind& kind) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<fs::path> found = FilesOfKind(path, kind);
    const fs::path below = path / kProbeFolder;
    if (kind.version == hdf5::kProbeLogFile.version &&
        fs::is_directory(below, error)) {
      std::ranges::move(FilesOfKind(below, kind), std::back_inserter(found));
    }
    if (found.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: the folder holds 0 files (NAME.h5) of the kind that is "
                 "needed here, a {}. Give another folder, or the files.",
                 path.string(), kind.name);
    }
    std::ranges::move(found, std::back_inserter(files));
  }
  return files;
}

}  // namespace

std::vector<fs::path> LogsIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end;
       entry.increment(error)) {
    const fs::path& file = entry->path();
    if (file.extension() == ".h5" &&
        !file.filename().string().starts_with(".")) {
      files.push_back(file);
    }
  }
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder can't be read: {}. Check its permissions.",
               folder.string(), error.message());
  }
  std::ranges::sort(files);
  return files;
}

bool IsPartial(const fs::path& file) {
  return file.stem().extension() == ".partial";
}

bool IsNamedAsOther(const fs::path& file) { return NamedKind(file) != nullptr; }

std::vector<compare::Run> ReadRuns(const std::vector<fs::path>& paths,
                                   const foreign::ReadOptions& options,
                                   Keep keep) {
  FoundRuns list(keep);
  std::vector<compare::Run>& runs = list.runs();
  std::vector<size_t> unnamed;  // places of runs whose seed is not known yet
  std::vector<ArmPath> logs;
  for (const fs::path& given : paths) {
    const ArmPath named = SplitArm(given);
    std::error_code error;
    const bool folder =
        fs::is_directory(named.path, error) && !IsForeignLog(named.path);
    std::vector<ArmPath> found;
    if (folder) found = InFolder(named);
    if (found.empty()) found.push_back(named);
    std::ranges::move(found, std::back_inserter(logs));
  }
  for (const ArmPath& named : logs) {
    std::error_code error;
    if (IsForeignLog(named.path)) {
      for (compare::Run& run : ReadForeignRuns(named, options)) {
        unnamed.push_back(runs.size());
        list.Add(std::move(run));
      }
    } else if (fs::is_directory(named.path, error)) {
      RefuseArm(named);
      ReadFolder(named.path, list);
    } else {
      list.Add(ReadRun(named.path));
      runlog::Provenance& provenance = runs.back().log.provenance;
      if (provenance.Knows(runlog::Fact::kExperiment)) RefuseArm(named);
      if (!named.arm.empty()) provenance.arm = named.arm;
      // A recording has no seed if nobody gave one. A run of isoloss has one.
      if (provenance.seed < 0 && !provenance.Knows(runlog::Fact::kExperiment)) {
        unnamed.push_back(runs.size() - 1);
      }
    }
  }
  std::vector<compare::Run*> unnamed_runs;
  for (const size_t place : unnamed) unnamed_runs.push_back(&runs[place]);
  NameSeeds(unnamed_runs);
  return std::move(runs);
}

std::vector<fs::path> ProbeFiles(const std::vector<fs::path>& paths) {
  return Expand(paths, hdf5::kProbeLogFile);
}

std::vector<fs::path> EnsembleFiles(const std::vector<fs::path>& paths) {
  return Expand(paths, hdf5::kEnsembleFile);
}

}  // namespace isoloss::logs
