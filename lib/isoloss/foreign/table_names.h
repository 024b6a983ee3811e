// Names that tables of programs give to their columns and keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// In the order of preference: an iteration goes before a number of log calls.
std::vector<std::string_view> StepNames();

/// The first of StepNames() among `names`; "" if none is one.
std::string_view StepNameAmong(const std::vector<std::string>& names);

/// Says what the step is by that name: unit and base.
void DescribeStep(std::string_view name, ForeignRun& run);

/// Whether a column of that name may tell rows of training from others.
bool IsPhaseName(std::string_view name);
/// What goes before the names of a row's series by the word in that column:
/// "validation/" of "Validation", "" of "train" and of any other word.
std::string PhasePrefix(std::string_view word);

/// Up to 12 names for a message, each in `quotes` and shortened; then how many
/// more there are. "none" if all are empty.
std::string NamesText(const std::vector<std::string>& names);

}  // namespace isoloss::foreign
