// Reads from the tree of a file the columns that a schema lists.
#pragma once

#include <string>

#include "isoloss/runlog/h5_tree.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/trailer.h"

namespace isoloss::runlog {

/// Fills the log that `schema` describes; accepts nothing that the schema does
/// not allow. Columns that the file's version does not have are left alone.
/// `path` and `kind` are for messages.
/// Errors   FormatError naming the file and the object.
void ReadColumns(const h5::Object& file, const std::string& path,
                 const FileKind& kind, const Schema& schema, MutableView log);

}  // namespace isoloss::runlog
