// The files of one run, from its first step to its last: a journal that every
// step is appended to, an HDF5 file built from the same rows every few seconds,
// and the final one.
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

/// Where a run's files lie.
struct RunPaths {
  std::filesystem::path folder;
  std::string name;  ///< "mxfp8-seed1"

  /// Returns the paths of the run to which a log, a partial log or a journal
  /// belongs.
  static RunPaths Of(const std::filesystem::path& file);

  std::filesystem::path Log() const;         ///< NAME.h5: the run has ended
  std::filesystem::path PartialLog() const;  ///< NAME.partial.h5: it has not
  std::filesystem::path Journal() const;     ///< NAME.journal
  /// NAME.journal.damaged: one that PartialLog() knew more than.
  std::filesystem::path DamagedJournal() const;
  std::filesystem::path Checkpoints() const;  ///< NAME.checkpoints/
};

/// Removes the hidden temporary files of the run that a killed process has
/// left.
/// Cost     reads the whole folder.
/// Errors   IoError if one can't be removed.
void RemoveTemporaries(const RunPaths& paths);

/// Removes what only a live run needs: journal, partial log, temporaries.
/// Errors   IoError if one can't be removed.
void RemoveLiveFiles(const RunPaths& paths);

/// Reads a run that has not ended: ReadJournal's content of Journal(), or in
/// some cases that with the log of PartialLog(). PartialLog() must be of the
/// same experiment, arm and seed, and the journal's head must be damaged or
/// damage must cut off steps that PartialLog() has. The note says so; a
/// Recorder that continues with these rows writes a new journal.
/// Errors   as ReadJournal if PartialLog() is of no help. Whether it belongs to
///          the run can't be told from a journal whose provenance is lost: the
///          caller looks at the log's, as always.
JournalContent ReadJournalOrPartial(const RunPaths& paths);

class Recorder {
 public:
  /// Keeps the log in memory only.
  explicit Recorder(Provenance provenance);
  /// A new run: what an earlier one left under these names is removed, the
  /// journal begins with `provenance`. Nothing is removed before the new
  /// journal is on disk; a kill in between leaves what the earlier run left, or
  /// this run at its beginning.
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
  /// `call` is called before a journal that was removed is written anew; what
  /// it throws ends that.
  void OnJournalLost(std::function<void()> call) {
    on_journal_lost_ = std::move(call);
  }

  /// Builds PartialLog() if it was built `seconds` ago or longer, and at least
  /// 20 times as long ago as that took: the whole log is built each time, which
  /// shall take no more than about 5 % of a run however long that becomes.
  void Refresh(double seconds);
  /// Nothing is lost from here on: what a checkpoint needs. Its cost does not
  /// grow with the log; PartialLog() is left to Refresh.
  void SyncJournal();
  /// SyncJournal, and PartialLog() is up to date: for the end of a run that is
  /// not finished.
  void Sync();
  /// Writes the final provenance and Log(), which gets its name when it has
  /// been read back, then removes journal and PartialLog(). A run that was
  /// interrupted is not finished: Sync it.
  /// Errors   as WriteRunLog and ReadRunLog; the journal is then kept.
  void Finish(const Provenance& provenance);

  const RunLog& log() const { return log_; }
  /// The last step of the log; 0 if it has none.
  int64_t last_step() const;

 private:
  using Clock = std::chrono::steady_clock;

  void BuildPartialLog();
  void KeepJournalInPlace();

  std::optional<RunPaths> paths_;  // none: in memory only
  // Equal to what the journal holds: it gets everything first.
  RunLog log_;
  std::optional<JournalWriter> journal_;
  std::function<void()> on_journal_lost_;
  Clock::time_point refreshed_ = Clock::now();  // end of the last build
  Clock::duration refresh_time_{};              // what that took
};

}  // namespace isoloss::runlog
