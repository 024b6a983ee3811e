// Reads logs that programs print line by line.
#pragma once

#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Lets the formats, in turn, read each line. Returns the run of the format
/// that knows most lines; empty if none knows one.
/// `step_name` is that of ReadOptions.
std::vector<ForeignRun> ReadPrintedLog(std::string_view text,
                                       std::string_view step_name);

}  // namespace isoloss::foreign
