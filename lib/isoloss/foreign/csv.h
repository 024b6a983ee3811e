// Tables with named columns: W&B's exports, Lightning's metrics.csv,
// TensorBoard's downloads, and any other with a step and numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads CSV (RFC 4180) or a table with tabs or semicolons, told apart by the
/// first line. An empty cell is missing; other cells are numbers or left out.
/// Between semicolons a number may have a comma in place of its point.
/// `step_name` is the column that counts the steps; "": by the usual names.
/// Empty if the first line does not have it.
/// Errors   FormatError if a row has another number of cells (but for the last,
///          which a killed program may have cut: it is dropped, and noted), if
///          no row has a step, or if it is a table with a run in each row.
std::vector<ForeignRun> ReadCsv(std::string_view text,
                                std::string_view step_name);

/// Names of the columns, if the text is a table but for the step: the second
/// line has as many cells as the first, and numbers where that has none.
std::vector<std::string> CsvColumns(std::string_view text);

/// Whether the first two lines are numbers alone, as many in each.
bool IsNamelessCsv(std::string_view text);

}  // namespace isoloss::foreign
