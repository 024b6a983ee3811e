// Runs that TensorBoard's event files hold.
#pragma once

#include <filesystem>

#include "isoloss/foreign/event_file.h"
#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// A series for each tag. Values are FP32, which nothing was rounded away from.
/// Points with a negative step are left out, and noted.
ForeignRun RunOfEvents(const EventFile& file);

/// The run of a folder: its event files, in the order of their names, which
/// begin with the time of the start. Without one of its own, those of its
/// folders that are named by the time of a start (20260503-0200), as torchtitan
/// makes one for each. Links are not followed.
/// Errors   ConfigError if there is none; as ReadEventFile; IoError.
EventFile ReadEventFolder(const std::filesystem::path& folder);

}  // namespace isoloss::foreign
