// Reads whole text files as strings.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace isoloss {

/// This limit is far above the size of any experiment, policy or report of
/// ours.
inline constexpr size_t kMaxTextFileBytes = size_t{16} << 20;

/// Reads a file. `remedy` is the last sentence of the message.
/// Errors   IoError naming the path and the system's reason if it can't be
///          read, as a folder, pipe or device can't; FormatError if it has more
///          than `max_bytes`.
std::string ReadTextFile(const std::filesystem::path& path,
                         std::string_view remedy,
                         size_t max_bytes = kMaxTextFileBytes);

}  // namespace isoloss
