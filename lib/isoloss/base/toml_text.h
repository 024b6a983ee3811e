// TOML from files that nobody trusts.
#pragma once

#include <toml++/toml.h>

#include <string_view>

namespace isoloss {

/// Parts of a dotted key: those of ours have at most 3.
inline constexpr int kMaxKeyParts = 16;
/// A table takes many times its text in memory.
inline constexpr size_t kMaxTomlBytes = size_t{4} << 20;

/// Parses `text`; `file` is the name of its file, for messages and the places
/// of values.
/// Errors   ConfigError "FILE:LINE:COLUMN: what. `remedy`" if the text is no
///          TOML, or if a dotted key has more than kMaxKeyParts parts (the
///          parser descends once for each and checks no depth), or the text
///          more than kMaxTomlBytes.
toml::table ParseToml(std::string_view text, std::string_view file,
                      std::string_view remedy = "Correct the TOML.");

}  // namespace isoloss
