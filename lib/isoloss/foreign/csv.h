// Reads tables with named columns: W&B's exports, Lightning's metrics.csv,
// TensorBoard's downloads, and any other table with a step and numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads CSV (RFC 4180) or a table with tabs or semicolons; the first line
/// tells which. An empty cell is missing; a cell that is no number is left out.
/// Between semicolons a number may have a comma in place of its point.
/// `step_name` is the column that counts the steps; "" means the usual names.
/// The result is empty if the first line does not have that column.
/// Errors   FormatError if a row has another number of cells (but for the last,
///          which a killed program may have cut: it is dropped, and noted), if
///          no row has a step, or if it is a table with a run in each row.
std::vector<ForeignRun> ReadCsv(std::string_view text,
                                std::string_view step_name);

/// Returns the names of the columns if the text is a table, with or without a
/// step. In a table, the second line has as many cells as the first, and
/// numbers in columns where the first line has none.
std::vector<std::string> CsvColumns(std::string_view text);

/// Returns whether the first two lines hold only numbers, equally many in each.
bool IsNamelessCsv(std::string_view text);

}  // namespace isoloss::foreign
