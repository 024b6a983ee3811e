// "Did you mean ...?" for misspelt keys and names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace isoloss {

/// The known name that `given` most likely means: the one with the smallest
/// edit distance (insert, delete, replace, swap neighbours; letter case is
/// ignored) if that is at most a third of given's length, or 1; else the first
/// one that begins with `given`; else "". The earlier of equally near names
/// wins.
std::string NearestName(std::string_view given,
                        std::span<const std::string> known);

/// " Did you mean `name`?", or "" if no known name is near.
std::string DidYouMean(std::string_view given,
                       std::span<const std::string> known);

/// The one of the dotted `keys` whose last part is `name`, or is nearest to it
/// (NearestName); "" if none is near.
std::string NearestKey(std::string_view name,
                       std::span<const std::string> keys);

}  // namespace isoloss
