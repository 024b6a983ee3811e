#include "isoloss/runlog/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/tensor_dump.h"
#include "isoloss/runlog/writer.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

/// Building the partial log takes at most one part in this many of the time.
constexpr int kPause = 50;

/// Returns the path of a journal that is made to replace another one.
fs::path NextJournal(const RunPaths& paths) {
  return paths.folder / fmt::format(".{}.journal.new.tmp", paths.name);
}

/// Removes hidden temporary files whose names begin with one of `fronts`.
void RemoveTemporaries(const fs::path& folder,
                       const std::vector<std::string>& fronts) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(".tmp") &&
        std::any_of(fronts.begin(), fronts.end(), [&](const auto& front) {
          return file.starts_with(front);
        })) {
      RemoveFile(entry.path());
    }
  }
}

}  // namespace

void RemoveTemporaries(const RunPaths& paths) {
  std::vector<std::string> fronts;
  for (const fs::path& path :
       {paths.Log(), paths.PartialLog(), paths.Journal(), NextJournal(paths)}) {
    fronts.push_back(fmt::format(".{}.", path.filename().string()));
  }
  RemoveTemporaries(paths.folder, fronts);
  RemoveTemporaries(paths.folder / kDumpFolder,
                    {fmt::format(".{}.dump-", paths.name)});
}

namespace {

/// True if a killed process may have left temporary files: all but the first
/// are made beside a journal. A search for them would read the whole folder, in
/// which thousands of further runs may lie.
bool IsLeftBehind(const RunPaths& paths) {
  return fs::exists(paths.Journal()) || fs::exists(NextJournal(paths));
}

/// Removes a file in the destructor, where the file may be missing.
class Remover {
 public:
  explicit Remover(fs::path path) : path_(std::move(path)) {}
  ~Remover() { ::unlink(path_.c_str()); }
  Remover(const Remover&) = delete;
  Remover& operator=(const Remover&) = delete;

 private:
  fs::path path_;
};

double UnixSeconds() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The new journal is whole, under another name, before anything is removed, so
/// that a full disk costs nothing. Checkpoints are removed before the journal
/// to which they belong: without them a resumed run begins at step 0. The
/// finished log is removed last: as long as it is there, the earlier run counts
/// as finished.
JournalWriter Begin(const RunPaths& paths, const Provenance& provenance) {
  const fs::path next = NextJournal(paths);
  const Remover remover(next);
  JournalWriter journal = JournalWriter::Create(next);
  journal.Append(provenance);
  journal.Sync();
  RemoveFolder(paths.Checkpoints());
  RemoveFile(paths.PartialLog());
  journal.Rename(paths.Journal());
  RemoveFile(paths.Log());
  return journal;
}

int64_t LastStep(const RunLog& log) {
  return log.steps.step.empty() ? 0 : log.steps.step.back();
}

/// Writes a journal of all of `log` to NextJournal(), on disk.
JournalWriter MakeWhole(const RunPaths& paths, const RunLog& log) {
  JournalWriter journal = JournalWriter::Create(NextJournal(paths));
  journal.Append(log.provenance);
  journal.Append(log);
  journal.Sync();
  return journal;
}

/// Opens the journal to continue `log`. A journal that lacks steps is replaced.
JournalWriter Continue(const RunPaths& paths, const RunLog& log) {
  if (HasJournalHead(paths.Journal())) {
    const JournalContent content = ReadJournal(paths.Journal());
    if (LastStep(content.log) >= LastStep(log)) {
      JournalWriter journal = JournalWriter::Continue(paths.Journal(), content);
      journal.Append(log.provenance);
      return journal;
    }
  }
  const Remover remover(NextJournal(paths));
  JournalWriter journal = MakeWhole(paths, log);
  // The damaged journal is copied, not moved: a kill must not leave the run
  // without a journal.
  std::error_code error;
  fs::copy_file(paths.Journal(), paths.DamagedJournal(),
                fs::copy_options::overwrite_existing, error);
  if (error) {
    errno = error.value();
    ThrowErrno(paths.DamagedJournal(), "copy the damaged journal to it");
  }
  journal.Rename(paths.Journal());
  return journal;
}

bool AreOfOneRun(const Provenance& a, const Provenance& b) {
  return a.config_digest == b.config_digest &&
         a.corpus_digest == b.corpus_digest && a.arm == b.arm &&
         a.seed == b.seed;
}

/// Throws unless the file holds `log`, since the file will be all that is left
/// of the run.
void CheckWritten(const RunLog& log, const fs::path& path) {
  const RunLog written = ReadRunLog(path, hdf5::Maker::kThisRun);
  const std::string difference = FirstDifference(log, written);
  if (difference.empty() && written.steps.step == log.steps.step) return;
  ThrowError(ErrorKind::kIo,
             "{}: was written, but reads back differently: {}. The journal is "
             "kept; check the disk and resume the run with --resume.",
             path.string(), difference.empty() ? "other steps" : difference);
}

}  // namespace

RunPaths RunPaths::Of(const fs::path& file) {
  fs::path name = file.filename();
  if (name.extension() == ".journal") {
    name = name.stem();
  } else {
    if (name.extension() == ".h5") name = name.stem();
    if (name.extension() == ".partial") name = name.stem();
  }
  return {file.parent_path(), name.string()};
}

fs::path RunPaths::Log() const { return folder / (name + ".h5"); }
fs::path RunPaths::PartialLog() const {
  return folder / (name + ".partial.h5");
}
fs::path RunPaths::Journal() const { return folder / (name + ".journal"); }
fs::path RunPaths::Checkpoints() const {
  return folder / (name + ".checkpoints");
}

fs::path RunPaths::DamagedJournal() const {
  return folder / (name + ".journal.damaged");
}

JournalContent ReadJournalOrPartial(const RunPaths& paths) {
  JournalContent content;
  // A head that is whole but of another version is no damage, and neither is a
  // record that is whole but not understood.
  const bool has_head = HasJournalHead(paths.Journal());
  if (has_head) content = ReadJournal(paths.Journal());
  if (has_head && content.torn_bytes == 0) return content;
  try {
    RunLog partial = ReadRunLog(paths.PartialLog());
    const bool knows_more =
        !has_head || LastStep(partial) > LastStep(content.log);
    const bool fits = content.records == 0 ||
                      AreOfOneRun(partial.provenance, content.log.provenance);
    if (!knows_more || !fits) return content;
    content.log = std::move(partial);
  } catch (const Error&) {
    return has_head ? content : ReadJournal(paths.Journal());
  }
  if (!has_head) {
    content.note = fmt::format("{}: its first bytes are damaged.",
                               paths.Journal().string());
  }
  content.note += fmt::format(
      " The rows up to step {} are those of {}; the journal is made anew from "
      "them, the damaged one kept as {}.",
      LastStep(content.log), paths.PartialLog().string(),
      paths.DamagedJournal().filename().string());
  return content;
}

void RemoveLiveFiles(const RunPaths& paths) {
  RemoveTemporaries(paths);
  RemoveFile(paths.PartialLog());
  RemoveFile(paths.Journal());
}

Recorder::Recorder(Provenance provenance) {
  log_.provenance = std::move(provenance);
}

Recorder::Recorder(RunPaths paths, Provenance provenance)
    : paths_(std::move(paths)) {
  log_.provenance = std::move(provenance);
  if (IsLeftBehind(*paths_)) RemoveTemporaries(*paths_);
  journal_.emplace(Begin(*paths_, log_.provenance));
}

Recorder::Recorder(RunPaths paths, Provenance provenance, RunLog recorded,
                   int64_t step)
    : paths_(std::move(paths)), log_(std::move(recorded)) {
  log_.provenance = std::move(provenance);
  if (last_step() < step) {
    ThrowError(ErrorKind::kFormat,
               "{}: the journal ends at step {}, but the run is to go on "
               "behind step {}. Resume from an earlier checkpoint or start it "
               "again with --restart.",
               paths_->Journal().string(), last_step(), step);
  }
  RemoveTemporaries(*paths_);
  journal_.emplace(Continue(*paths_, log_));
}

void Recorder::Append(const RunLog& rows) {
  CheckAppend(rows, log_);
  RunLog fresh = rows;
  UnifyNans(fresh);
  const std::string difference =
      HaveCommonSteps(fresh, log_) ? FirstDifference(fresh, log_) : "";
  if (!difference.empty()) {
    ThrowError(ErrorKind::kFormat,
               "{}: a step computed again differs from the recorded one: {}. "
               "The program or the machine does not compute what it did; start "
               "the run again with --restart.",
               paths_ ? paths_->Journal().string() : "run log", difference);
  }
  DropRowsOf(log_, fresh);
  if (HasNoRows(fresh)) return;
  // The order is checked before the journal has the rows: a step that the log
  // can't take would be lost with all before it.
  CheckOrder(fresh, log_);
  CheckSize(fresh, log_);
  if (journal_) journal_->Append(fresh);
  TakeRows(fresh, log_);
  KeepJournalInPlace();
}

/// Runs after each append, so that the next execution finds all acknowledged
/// rows in a file.
void Recorder::KeepJournalInPlace() {
  if (!journal_ || journal_->IsInPlace()) return;
  if (!fs::is_directory(paths_->folder)) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder was removed or renamed while run {} wrote to "
               "it, at step {}. Rename it back and resume the run with "
               "--resume, or start it again.",
               paths_->folder.string(), paths_->name, last_step());
  }
  if (on_journal_lost_) on_journal_lost_();
  RunLog note;
  note.events.push_back(
      {UnixSeconds(), "damage",
       fmt::format("{}: it was removed or replaced while the run went on, so "
                   "it was written anew with all rows up to step {}",
                   paths_->Journal().string(), last_step())});
  AppendRows(note, log_);
  const Remover remover(NextJournal(*paths_));
  JournalWriter journal = MakeWhole(*paths_, log_);
  journal.Rename(paths_->Journal());
  journal_.emplace(std::move(journal));
}

void Recorder::AddEvent(const std::string& kind, const std::string& text) {
  RunLog rows;
  rows.events.push_back({UnixSeconds(), kind, text});
  Append(rows);
}

void Recorder::Refresh(double seconds) {
  const Clock::duration age = Clock::now() - refreshed_;
  if (std::chrono::duration<double>(age).count() >= seconds &&
      age >= kPause * refresh_time_) {
    BuildPartialLog();
  }
}

void Recorder::SyncJournal() {
  KeepJournalInPlace();
  if (journal_) journal_->Sync();
}

void Recorder::Sync() {
  SyncJournal();
  BuildPartialLog();
}

void Recorder::Finish(const Provenance& provenance) {
  if (journal_) journal_->Append(provenance);
  log_.provenance = provenance;
  if (!paths_) return;
  WriteRunLog(log_, paths_->PartialLog());
  CheckWritten(log_, paths_->PartialLog());
  Rename(paths_->PartialLog(), paths_->Log());
  SyncFolderOf(paths_->Log());
  RemoveFile(paths_->Journal());
  journal_.reset();
}

int64_t Recorder::last_step() const { return LastStep(log_); }

void Recorder::BuildPartialLog() {
  const Clock::time_point begin = Clock::now();
  if (paths_) WriteRunLog(log_, paths_->PartialLog());
  refreshed_ = Clock::now();
  refresh_time_ = refreshed_ - begin;
}

}  // namespace isoloss::runlog
