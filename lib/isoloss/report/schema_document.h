// Shows the layout of a run log, for `isoloss show --schema`.
#pragma once

#include "isoloss/document/document.h"

namespace isoloss::report {

/// Returns a section for the attributes of the file and one for each group, in
/// their order on disk. A row has a dataset's name, its type with its shape,
/// and its unit. The lines below the row say what the dataset means and which
/// values a sound log holds:
///   /steps: Each optimizer step
///     dataset    type and shape  unit
///     loss_nats  float64 [rows]  nat
///       Mean training loss over the step's labels, before its update
///       values: finite, above 0, at most FLT_MAX
///
/// Programs read {"groups": [{"name", "meaning", "datasets": [{"name", "type",
/// "unit", "values", "meaning"}]}]}. The first group has the name "" and the
/// attributes of the file.
document::Document SchemaDocument();

}  // namespace isoloss::report
