// Reads a run log from HDF5.
#pragma once

#include <filesystem>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Errors   IoError if the file can't be opened; FormatError if it is not HDF5,
///          is truncated, has another schema version, or holds datasets of
///          wrong type or unequal length. A missing optional column is an empty
///          vector; NaN and infinity are values for the judge, not errors.
RunLog ReadRunLog(const std::filesystem::path& path);

}  // namespace isoloss::runlog
