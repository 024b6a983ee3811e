// What logs of other programs hold, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/foreign/foreign_run.h"

namespace isoloss::report {

/// A table of each run's series, then its findings. `file` is what was read;
/// names are made printable.
std::string RenderForeignLog(const std::string& file,
                             const std::vector<foreign::ForeignRun>& runs);

/// {"file", "runs": [{"name", "format", "step_unit", "step_base", "seed",
/// "findings", "series": [{"name", "quantity", "averaging", "decimals",
/// "significant", "scientific", "exact", "repeated", "copies", "step",
/// "value"}]}]}. Values that are not finite are the strings "nan", "inf" and
/// "-inf".
document::Json ForeignLogJson(const std::string& file,
                              const std::vector<foreign::ForeignRun>& runs);

}  // namespace isoloss::report
