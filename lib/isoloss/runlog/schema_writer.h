// Writes into an HDF5 file the columns that a schema lists.
#pragma once

#include <string>

#include "isoloss/hdf5/handle.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Writes the log that `schema` describes. `document` is for messages: "run
/// log".
/// Errors   ShapeError if columns that belong together disagree in length.
void WriteColumns(const hdf5::Handle& file, const std::string& document,
                  const Schema& schema, const View& log);

}  // namespace isoloss::runlog
