// Mappings: TOML files that say which tensor of which safetensors or .npy file
// is which of an operation (docs/check-tensors.md).
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "isoloss/operations/operation.h"

namespace isoloss::operations {

/// Bytes of a file beside the mapping, by its name.
using FileOpener =
    std::function<std::span<const std::byte>(const std::string& name)>;

/// `file` is the mapping's name in messages.
/// Errors   ConfigError of the mapping; FormatError of what it names; those of
///          CheckExtents.
OperationFile ParseMapping(std::string_view text, const std::string& file,
                           const FileOpener& open);

/// Opens only files in the mapping's own folder, and no links.
OperationFile ReadMapping(const std::filesystem::path& path);

}  // namespace isoloss::operations
