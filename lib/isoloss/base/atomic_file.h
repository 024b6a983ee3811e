// Files that are either whole or not there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace isoloss {

/// Writes `bytes` under a temporary name in the folder of `path` (hidden, with
/// the process id in it), syncs and renames it, and syncs the folder. An
/// existing file is replaced in one step.
/// Errors   IoError naming the path and the system's reason; the temporary file
///          is removed. An existing `path` that is no regular file is refused.
void WriteFileAtomically(const std::filesystem::path& path,
                         std::span<const std::byte> bytes);
void WriteFileAtomically(const std::filesystem::path& path,
                         std::string_view text);

/// Makes the names in the folder of `path` survive the death of the machine.
/// Errors   IoError naming the path and the system's reason.
void SyncFolderOf(const std::filesystem::path& path);

}  // namespace isoloss
