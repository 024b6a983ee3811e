// Writes the report page to a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "isoloss/report/page/data.h"

namespace isoloss::verdicts {

/// Checks that the page may be written to `output`.
/// Errors   ConfigError if `output` is one of `inputs`, or is there and is no
///          report page.
void CheckReportPage(const std::filesystem::path& output,
                     const std::vector<std::filesystem::path>& inputs = {});

/// Writes the page, completely or not at all; returns how many bytes it has.
/// Call CheckReportPage first.
/// Errors   IoError naming the path and the system's reason.
size_t WriteReportPage(const report::PageContent& content,
                       const std::filesystem::path& output);

}  // namespace isoloss::verdicts
