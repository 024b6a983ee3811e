// Reads a run log from HDF5.
#pragma once

#include <filesystem>

#include "isoloss/hdf5/read_limit.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// A missing optional column is an empty vector. NaN and infinity are values
/// for the judge, not errors.
/// Errors   IoError if the file can't be opened; WrongKindError if it is
///          another file of ours; FormatError if it is not HDF5, is truncated,
///          holds too much (hdf5/read_limit.h) or has another schema version;
///          if datasets have a wrong type or unequal lengths, steps do not
///          ascend or times are in no calendar.
RunLog ReadRunLog(const std::filesystem::path& path,
                  hdf5::Maker maker = hdf5::Maker::kAnybody);

/// True if a time is in the years 1970 to 9999.
bool IsCalendarTime(double unix_seconds);

}  // namespace isoloss::runlog
