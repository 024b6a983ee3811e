// Compares two dumps of one step.
#pragma once

#include <filesystem>

#include "isoloss/system/exit_code.h"

namespace isoloss::cli {

using system::ExitCode;

/// Prints the first tensor, block and elements that differ, and which operation
/// adds error. Exit code 0 if the dumps are equal to the bit, 1 if not.
/// Errors   as runlog::ReadTensorDump and compare::CompareDumps.
ExitCode CompareDumpFiles(const std::filesystem::path& a,
                          const std::filesystem::path& b, bool json);

}  // namespace isoloss::cli
