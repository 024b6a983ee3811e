// The text that keeps figures of one experiment over commits: one JSON object a
// line, one line a run (docs/history.md).
#pragma once

#include <string>
#include <vector>

#include "isoloss/compare/figure_history.h"

namespace isoloss::report {

/// The records of a history, in their order; what a merge doubled is there
/// once. `name` stands for the file in messages.
///
/// Bounds   lines of 4,096 bytes, names of 200 bytes without control
///          characters.
/// Errors   FormatError naming the line if it is no such record, contradicts an
///          earlier one of the same run, or is of another experiment than the
///          first.
std::vector<compare::FigureRecord> ParseHistory(const std::string& text,
                                                const std::string& name);

/// One line without its end, which ParseHistory reads as the same record:
/// numbers in the fewest decimals that give their bits.
/// Errors   ConfigError if ParseHistory would refuse it.
std::string HistoryLine(const compare::FigureRecord& record);

/// "commit C, arm A, seed S".
std::string HistoryRunName(const compare::FigureRecord& record);

}  // namespace isoloss::report
