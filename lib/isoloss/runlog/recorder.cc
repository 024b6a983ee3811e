#include "isoloss/runlog/recorder.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/writer.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

/// Those of WriteFileAtomically that a killed process has left.
void RemoveTemporaries(const RunPaths& paths) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(paths.folder, ignored)) {
    const std::string file = entry.path().filename().string();
    for (const fs::path& path :
         {paths.Log(), paths.PartialLog(), paths.Journal()}) {
      if (file.starts_with(fmt::format(".{}.", path.filename().string())) &&
          file.ends_with(".tmp")) {
        RemoveFile(entry.path());
      }
    }
  }
}

double UnixSeconds() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The new journal is whole, under another name, before anything goes, so that
/// a full disk costs nothing. Checkpoints go before the journal they belong to:
/// without them a resumed run begins at step 0. The finished log goes last: as
/// long as it is there the earlier run counts as finished.
JournalWriter Begin(const RunPaths& paths, const Provenance& provenance) {
  const fs::path next =
      paths.folder /
      fmt::format(".{}.new.tmp", paths.Journal().filename().string());
  JournalWriter journal = JournalWriter::Create(next);
  journal.Append(provenance);
  journal.Sync();
  RemoveFolder(paths.Checkpoints());
  RemoveFile(paths.PartialLog());
  journal.Rename(paths.Journal());
  RemoveFile(paths.Log());
  return journal;
}

}  // namespace

fs::path RunPaths::Log() const { return folder / (name + ".h5"); }
fs::path RunPaths::PartialLog() const {
  return folder / (name + ".partial.h5");
}
fs::path RunPaths::Journal() const { return folder / (name + ".journal"); }
fs::path RunPaths::Checkpoints() const {
  return folder / (name + ".checkpoints");
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
  RemoveTemporaries(*paths_);
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
               "again without --resume.",
               paths_->Journal().string(), last_step(), step);
  }
  RemoveTemporaries(*paths_);
  journal_.emplace(JournalWriter::Continue(paths_->Journal()));
  journal_->Append(log_.provenance);
}

void Recorder::Append(const RunLog& rows) {
  CheckAppend(rows, log_);
  const std::string difference = FirstDifference(rows, log_);
  if (!difference.empty()) {
    ThrowError(ErrorKind::kFormat,
               "{}: a step computed again differs from the recorded one: {}. "
               "The program or the machine does not compute what it did; start "
               "the run again without --resume.",
               paths_ ? paths_->Journal().string() : "run log", difference);
  }
  RunLog fresh = rows;
  DropRowsOf(log_, fresh);
  if (HasNoRows(fresh)) return;
  if (journal_) journal_->Append(fresh);
  AppendRows(fresh, log_);
}

void Recorder::AddEvent(const std::string& kind, const std::string& text) {
  RunLog rows;
  rows.events.push_back({UnixSeconds(), kind, text});
  Append(rows);
}

void Recorder::Refresh(double seconds) {
  const std::chrono::duration<double> age = Clock::now() - refreshed_;
  if (age.count() >= seconds) BuildPartialLog();
}

void Recorder::Sync() {
  if (journal_) journal_->Sync();
  BuildPartialLog();
}

void Recorder::Finish(const Provenance& provenance) {
  if (journal_) journal_->Append(provenance);
  log_.provenance = provenance;
  if (!paths_) return;
  WriteRunLog(log_, paths_->Log());
  RemoveLiveFiles(*paths_);
  journal_.reset();
}

int64_t Recorder::last_step() const {
  return log_.steps.step.empty() ? 0 : log_.steps.step.back();
}

void Recorder::BuildPartialLog() {
  if (paths_) WriteRunLog(log_, paths_->PartialLog());
  refreshed_ = Clock::now();
}

}  // namespace isoloss::runlog
