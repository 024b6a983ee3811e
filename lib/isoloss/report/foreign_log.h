// Shows the content of foreign programs' logs, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "isoloss/document/document.h"
#include "isoloss/foreign/foreign_run.h"

namespace isoloss::report {

/// Returns a table of each run's series, then its findings. `file` is the file
/// that was read; names are made printable.
///
/// Programs read {"file", "runs": [{"name", "format", "step_unit", "step_base",
/// "seed", "findings", "series": [{"name", "quantity", "counts", "averaging",
/// "decimals", "significant", "scientific", "exact", "repeated", "copies",
/// "step", "value"}]}]}. `counts`: the judge takes the series for its quantity,
/// and no other of that quantity. Values that are not finite are the strings
/// "nan", "inf" and "-inf". Steps and values are left out unless `with_values`,
/// because there may be as many as a file has bytes.
document::Document DocumentOf(const std::string& file,
                              const std::vector<foreign::ForeignRun>& runs,
                              bool with_values);

}  // namespace isoloss::report
