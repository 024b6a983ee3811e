// Outputs never replace inputs, nor what isoloss did not write for that
// purpose.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace isoloss::campaign {

/// Whether an existing file is an earlier output of the same kind. May throw
/// isoloss::Error for "no".
using IsEarlierOutput = std::function<bool(const std::filesystem::path& file)>;

/// Whether `output` may be written; removes what killed processes left of it.
/// `kind` completes "is no", say "null ensemble"; `option` is what named it. Of
/// an empty file nothing is lost; what is no regular file is left to who
/// writes. Errors   ConfigError if `output` is one of `inputs`, under whatever
/// name, or
///          is there and is no earlier output.
void CheckOutput(const std::filesystem::path& output,
                 const std::vector<std::filesystem::path>& inputs,
                 std::string_view kind, const IsEarlierOutput& is_earlier,
                 std::string_view option = "--out");

// `is_earlier` for text that would look like `text`: the file has the same
// first line; or that is a JSON object with the same keys. Nothing looks like
// an empty text.
IsEarlierOutput HasFirstLineOf(std::string_view text);
IsEarlierOutput HasFirstKeysOf(std::string_view text);

}  // namespace isoloss::campaign
