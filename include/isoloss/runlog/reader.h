// Reads a run log from HDF5.
#pragma once

#include <filesystem>

#include "isoloss/runlog/read_limit.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Errors   IoError if the file can't be opened; WrongKindError if it is
///          another file of ours; FormatError if it is not HDF5, is truncated,
///          holds too much (read_limit.h), has another schema version, holds
///          datasets of wrong type or unequal length, steps that do not ascend
///          or times that no calendar has. A missing optional column is an
///          empty vector; NaN and infinity are values for the judge, not
///          errors.
RunLog ReadRunLog(const std::filesystem::path& path,
                  Maker maker = Maker::kAnybody);

/// Whether a time is one of the years 1970 to 9999.
bool IsCalendarTime(double unix_seconds);

}  // namespace isoloss::runlog
