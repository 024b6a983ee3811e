// Verdicts, read back from the files that isoloss wrote.
#pragma once

#include <filesystem>
#include <vector>

#include "isoloss/report/json_numbers.h"

namespace isoloss::campaign {

/// The objects of verdict.json, one for each candidate.
/// Errors   as ReadJsonFile; FormatError if an outcome is not that of its
/// checks.
std::vector<report::Json> ReadVerdictFile(const std::filesystem::path& path);

}  // namespace isoloss::campaign
