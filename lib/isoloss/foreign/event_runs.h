// Makes runs from TensorBoard's event files.
#pragma once

#include <filesystem>

#include "isoloss/foreign/event_file.h"
#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Makes a series for each tag. Values are FP32, so no digit was rounded away.
/// Points with a negative step are left out, and noted.
ForeignRun RunOfEvents(const EventFile& file);

/// Reads the event files of a folder as one run. The files are taken in the
/// order of their names, which begin with the time of the start. If the folder
/// has no event file of its own, the files of folders in it count that are
/// named by the time of a start (20260503-0200): torchtitan makes such a folder
/// for each start. Links are not followed.
/// Errors   ConfigError if there is none; as ReadEventFile; IoError.
EventFile ReadEventFolder(const std::filesystem::path& folder);

}  // namespace isoloss::foreign
