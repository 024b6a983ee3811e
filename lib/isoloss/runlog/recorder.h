// Keeps the files of one run from its first step to its last: a journal to
// which every step is appended, an HDF5 file built from the same rows every few
// seconds, and the final one.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/runlog/journal.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Says where a run's files lie.
struct RunPaths {
  std::filesystem::path folder;
  std::string name;  ///< "mxfp8-seed1"

  /// Returns the paths of the run to which a log, a partial log or a journal
  /// belongs.
  static RunPaths Of(const std::filesystem::path& file);

  std::filesystem::path Log() const;         ///< NAME.h5: the run has ended
  std::filesystem::path PartialLog() const;  ///< NAME.partial.h5: it has not
  std::filesystem::path Journal() const;     ///< NAME.journal
  /// NAME.journal.damaged: a journal that had fewer steps than PartialLog().
  std::filesystem::path DamagedJournal() const;
  std::filesystem::path Checkpoints() const;  ///< NAME.checkpoints/
};

/// Removes the hidden temporary files of the run that a killed process has
/// left.
/// Cost     reads the whole folder.
/// Errors   IoError if one can't be removed.
void RemoveTemporaries(const RunPaths& paths);

/// Removes files that only a live run needs: journal, partial log, temporaries.
/// Errors   IoError if one can't be removed.
void RemoveLiveFiles(const RunPaths& paths);

/// Reads a run that has not ended: ReadJournal's content of Journal(). The log
/// of PartialLog() replaces the journal's in two cases, if it is of the same
/// experiment, arm and seed: the journal's head is damaged, or damage cuts off
/// steps that PartialLog() has. The note says so; a Recorder that continues
/// with these rows writes a new journal.
/// Errors   as ReadJournal if PartialLog() is of no help. A journal whose
///          provenance is lost does not tell if it belongs to the run: the
///          caller looks at the log's provenance, as always.
JournalContent ReadJournalOrPartial(const RunPaths& paths);

class Recorder {
 public:
  /// Keeps the log in memory only.
  explicit Recorder(Provenance provenance);
  /// Starts a new run: files that an earlier run left under these names are
  /// removed, and the journal begins with `provenance`. Nothing is removed
  /// before the new journal is on disk. A kill in between leaves the files of
  /// the earlier run, or this run at its beginning.
  Recorder(RunPaths paths, Provenance provenance);
  /// Continues after `step` with the rows that ReadJournal or
  /// ReadJournalOrPartial found. Later steps of `recorded` are computed again,
  /// and must come out the same. A journal that has fewer steps than
  /// `recorded`, or no head, is copied to DamagedJournal() and replaced by one
  /// that has these rows.
  /// Errors   FormatError if `recorded` ends before `step`.
  Recorder(RunPaths paths, Provenance provenance, RunLog recorded,
           int64_t step);

  /// Appends the rows of one step; rows of `rows` have steps above those given
  /// before. Returns when the journal has them under its own name. A journal
  /// that was removed or replaced meanwhile is written anew whole, and an event
  /// of kind "damage" tells it. Rows of a step that the journal already has are
  /// compared instead. After an error the log is as before.
  /// Errors   IoError if the folder was removed or renamed;
  ///           FormatError if a step that is computed again differs
  ///          (FirstDifference): the program or the machine does not compute
  ///          what it did; ShapeError as AppendRows; IoError as JournalWriter.
  void Append(const RunLog& rows);
  void AddEvent(const std::string& kind, const std::string& text);
  /// `call` is called before a journal that was removed is written anew; if it
  /// throws, the journal is not written.
  void OnJournalLost(std::function<void()> call) {
    on_journal_lost_ = std::move(call);
  }

  /// Builds PartialLog() if it was built `seconds` ago or longer, and at least
  /// 50 times as long ago as the build took. The whole log is built each time,
  /// which must take no more than about 2 % of a run however long that becomes.
  void Refresh(double seconds);
  /// Nothing that was appended is lost after this call, as a checkpoint needs.
  /// Its cost does not grow with the log; PartialLog() is left to Refresh.
  void SyncJournal();
  /// Runs SyncJournal and brings PartialLog() up to date, at the end of a run
  /// that is not finished.
  void Sync();
  /// Writes the final provenance and Log(), which gets its name when it has
  /// been read back, then removes journal and PartialLog(). A run that was
  /// interrupted is not finished: call Sync.
  /// Errors   as WriteRunLog and ReadRunLog; the journal is then kept.
  void Finish(const Provenance& provenance);

  const RunLog& log() const { return log_; }
  /// Returns the last step of the log; 0 if it has none.
  int64_t last_step() const;

 private:
  using Clock = std::chrono::steady_clock;

  void BuildPartialLog();
  void KeepJournalInPlace();

  std::optional<RunPaths> paths_;  // none: in memory only
  // The log equals the journal, to which everything is appended first.
  RunLog log_;
  std::optional<JournalWriter> journal_;
  std::function<void()> on_journal_lost_;
  Clock::time_point refreshed_ = Clock::now();  // end of the last build
  Clock::duration refresh_time_{};              // what that took
};

}  // namespace isoloss::runlog
