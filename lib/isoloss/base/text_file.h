// Whole text files as strings.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace isoloss {

/// Reads a file. `remedy` is the last sentence of the message.
/// Errors   IoError naming the path and the system's reason if it can't be
///          read, as a folder can't.
std::string ReadTextFile(const std::filesystem::path& path,
                         std::string_view remedy);

}  // namespace isoloss
