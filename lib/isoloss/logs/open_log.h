// Opens a run log in any of its shapes: final, partial, or the journal of a
// live run.
#pragma once

#include <filesystem>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::logs {

/// Returns whether the file begins as a journal.
bool IsJournal(const std::filesystem::path& file);

struct OpenedLog {
  runlog::RunLog log;
  bool journal = false;
  /// Says what was left out of a journal, or "".
  std::string note;
};

/// Reads a run log (HDF5) or a journal; their first bytes tell which it is.
/// Errors   as runlog::ReadRunLog and runlog::ReadJournal. If NAME.h5 does not
///          exist yet, the message names its journal.
OpenedLog OpenLog(const std::filesystem::path& file);

}  // namespace isoloss::logs
