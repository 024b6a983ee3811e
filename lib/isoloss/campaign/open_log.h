// A run log in any of its shapes: final, partial, or the journal of a live run.
#pragma once

#include <filesystem>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::campaign {

/// Does the file begin as a journal?
bool IsJournal(const std::filesystem::path& file);

struct OpenedLog {
  runlog::RunLog log;
  bool journal = false;
  /// What was left out of a journal, or "".
  std::string note;
};

/// Reads a run log (HDF5) or a journal, told apart by their first bytes.
/// Errors   as runlog::ReadRunLog and runlog::ReadJournal; of an NAME.h5 that
///          is not there yet, the message names the journal that is.
OpenedLog OpenLog(const std::filesystem::path& file);

}  // namespace isoloss::campaign
