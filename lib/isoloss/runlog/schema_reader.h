// Reads what a schema lists from the tree of a file.
#pragma once

#include <string>

#include "isoloss/runlog/h5_tree.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/trailer.h"

namespace isoloss::runlog {

/// Fills the log that `schema` describes; accepts nothing but what the schema
/// says. What the file's version does not know is left alone. `path` and `kind`
/// are for messages.
/// Errors   FormatError naming the file and the object.
void ReadColumns(const h5::Object& file, const std::string& path,
                 const FileKind& kind, const Schema& schema, MutableView log);

}  // namespace isoloss::runlog
