// From logs to a history of figures, and from the history to what is shown.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/campaign/history_file.h"
#include "isoloss/report/history.h"

namespace isoloss::campaign {

struct HistoryRecording {
  /// Run logs, or folders of them; of a folder that `isoloss verify` wrote, the
  /// outcomes of verdict.json, too.
  std::vector<std::filesystem::path> logs;
  std::filesystem::path file;
  std::string commit;  ///< revision; "": the one that the logs name
  bool replace = false;
};

/// Adds one line for each run to the file. The commit is looked up in the git
/// repository around the working folder; outside of one it is kept as it is.
/// Errors   as ReadRuns, ReadVerdictFile and AddToHistory; ConfigError if the
///          logs name no commit, a modified source or several commits, if a
///          revision names no commit, if there are two logs of a run, or one of
///          a run that was interrupted.
HistoryUpdate RecordHistory(const HistoryRecording& recording);

struct HistoryView {
  std::filesystem::path file;
  std::vector<std::string> arms = {};     ///< all, if empty
  std::vector<std::string> figures = {};  ///< all, if empty
  compare::MoveOptions options = {};
};

/// Commits are ordered by the git repository around the file, along the first
/// parents of HEAD; others are left out with a note. Without such a repository,
/// or if none of its commits is in the file, by their place in the file.
/// Errors   as ReadHistory; ConfigError if there is nothing to show.
report::History ReadHistoryView(const HistoryView& view);

}  // namespace isoloss::campaign
