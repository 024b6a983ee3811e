// Reads logs of other programs, told apart by what is in them.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/foreign/read_options.h"
#include "isoloss/foreign/source.h"

namespace isoloss::foreign {

/// Returns the runs of a log: one, or several of a chart; each has a series
/// with values. Formats: docs/import.md. If `options` name a loss, that series
/// is the only one of Quantity::kLoss, and runs without it are left out.
/// Errors   FormatError if it is none of the formats, or one of them without a
///          value, or without a name of `options`; the message does not name
///          the file.
std::vector<ForeignRun> ParseLog(std::string_view content,
                                 const ReadOptions& options = {});

/// Reads a file, or a folder of a program, as ParseLog does.
/// Errors   as ParseLog, with the name; IoError if it can't be read.
std::vector<ForeignRun> ReadLog(const std::filesystem::path& path,
                                const ReadOptions& options = {});

/// Returns whether another program wrote the folder as a log. A folder with run
/// logs belongs to isoloss.
bool IsLogFolder(const std::filesystem::path& folder);

}  // namespace isoloss::foreign
