// Compares two dumps of one step, in words.
#pragma once

#include <string>

#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/error_growth.h"

namespace isoloss::report {

/// Returns lines of text with their ends: the first tensor that differs with
/// its first differing block (scale bytes and codes of both) and elements, then
/// a table of all tensors that differ.
std::string RenderDumpDifference(const compare::DumpDifference& difference);

/// Returns the first operation that adds error, and a table of the operations
/// that add most.
std::string RenderErrorGrowth(const compare::ErrorGrowth& growth);

}  // namespace isoloss::report
