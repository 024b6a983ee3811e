// Reads from the tree of a file the columns that a schema lists.
#pragma once

#include <string>

#include "isoloss/hdf5/trailer.h"
#include "isoloss/hdf5/tree.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Fills the log that `schema` describes; accepts nothing that the schema does
/// not allow. Columns that the file's version does not have are left alone.
/// `path` and `kind` are for messages.
/// Errors   FormatError naming the file and the object.
void ReadColumns(const hdf5::Object& file, const std::string& path,
                 const hdf5::FileKind& kind, const Schema& schema,
                 MutableView log);

}  // namespace isoloss::runlog
