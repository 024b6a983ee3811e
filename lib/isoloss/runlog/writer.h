// Writes a run log as HDF5, completely or not at all.
#pragma once

#include <filesystem>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Writes `log` to `path` in the earliest HDF5 format: to a temporary name in
/// the same folder, closed, synced, then renamed. A file under the final name
/// is always whole; an existing one is replaced.
/// Errors   IoError naming the path and the system's reason; ConfigError if a
///          reader would find it too large (CheckSize). Nothing is left.
void WriteRunLog(const RunLog& log, const std::filesystem::path& path);

}  // namespace isoloss::runlog
