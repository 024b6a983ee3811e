// Compares two dumps of one step, in words.
#pragma once

#include <string>

#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/error_growth.h"

namespace isoloss::report {

/// Lines of text with their ends: the first tensor that differs with its first
/// differing block (scale bytes and codes of both) and elements, then a table
/// of all that differ.
std::string RenderDumpDifference(const compare::DumpDifference& difference);

/// The first operation that adds error, and a table of those that add most.
std::string RenderErrorGrowth(const compare::ErrorGrowth& growth);

}  // namespace isoloss::report
