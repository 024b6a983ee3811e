// Reads verdicts back from the files that isoloss wrote.
#pragma once

#include <filesystem>
#include <vector>

#include "isoloss/document/json.h"

namespace isoloss::verdicts {

/// Returns the objects of verdict.json, one for each candidate.
/// Errors   as ReadJsonFile; FormatError if an outcome is not that of its
///          checks.
std::vector<document::Json> ReadVerdictFile(const std::filesystem::path& path);

}  // namespace isoloss::verdicts
