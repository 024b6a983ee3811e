// Tables with named columns: W&B's exports, Lightning's metrics.csv,
// TensorBoard's downloads, and any other with a step and numbers.
#pragma once

#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Reads CSV (RFC 4180) or a table with tabs or semicolons, told apart by the
/// first line. An empty cell is missing; other cells are numbers or left out.
/// Empty if the first line does not name a step.
/// Errors   FormatError if a row has another number of cells (but for the last,
///          which a killed program may have cut: it is dropped, and noted), or
///          if it is a table with a run in each row.
std::vector<ForeignRun> ReadCsv(std::string_view text);

}  // namespace isoloss::foreign
