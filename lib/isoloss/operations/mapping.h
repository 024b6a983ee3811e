// Reads mappings: TOML files that assign tensors of safetensors or .npy files
// to operations (docs/check-tensors.md).
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "isoloss/operations/operation.h"

namespace isoloss::operations {

/// Returns the bytes of a file beside the mapping, by its name.
using FileOpener =
    std::function<std::span<const std::byte>(const std::string& name)>;

/// Parses a mapping; `file` is its name in messages.
/// Errors   ConfigError about the mapping; FormatError about the files in it;
///          those of CheckExtents.
OperationFile ParseMapping(std::string_view text, const std::string& file,
                           const FileOpener& open);

/// Reads a mapping. Opens only files in the mapping's own folder, and no links.
OperationFile ReadMapping(const std::filesystem::path& path);

}  // namespace isoloss::operations
