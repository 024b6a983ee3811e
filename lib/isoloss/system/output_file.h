// Ensures that outputs never replace inputs, nor files that isoloss did not
// write for that purpose.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace isoloss::system {

/// Returns whether an existing file is an earlier output of the same kind. May
/// throw isoloss::Error for "no".
using IsEarlierOutput = std::function<bool(const std::filesystem::path& file)>;

/// Checks that `output` may be written, and removes what killed processes left
/// of it. `kind` completes "is no", say "null ensemble". `option` is the option
/// that names the output. An empty file may be replaced. If `output` is no
/// regular file, the writer has to check it.
/// Errors   ConfigError if `output` is one of `inputs`, under whatever name, or
///          is there and is no earlier output.
void CheckOutput(const std::filesystem::path& output,
                 const std::vector<std::filesystem::path>& inputs,
                 std::string_view kind, const IsEarlierOutput& is_earlier,
                 std::string_view option = "--out");

// Both return an `is_earlier` for files like `text`. The file must have the
// same first line, or a first line that is a JSON object with the same keys.
// Nothing looks like an empty text.
IsEarlierOutput HasFirstLineOf(std::string_view text);
IsEarlierOutput HasFirstKeysOf(std::string_view text);

}  // namespace isoloss::system
