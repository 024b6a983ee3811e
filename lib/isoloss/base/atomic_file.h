// Files that are either whole or not there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
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

/// Removes from `folder` the temporary files of killed processes that were
/// writing a file `name`, or any file if that is "". Those of processes that
/// live, here or on another machine that shares the folder, stay. Throws
/// nothing.
void RemoveStaleTemporaries(const std::filesystem::path& folder,
                            const std::string& name = "");

/// Makes the names in the folder of `path` survive the death of the machine.
/// Errors   IoError naming the path and the system's reason.
void SyncFolderOf(const std::filesystem::path& path);

}  // namespace isoloss
