// Look-up of what a .def file registers.
#pragma once

#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::formats {

/// The entry of that name.
/// Errors   ConfigError that lists the names and suggests the nearest.
template <typename T>
const T& RegisteredByName(std::span<const T* const> entries,
                          std::string_view name, std::string_view what) {
  std::vector<std::string> names;
  for (const T* entry : entries) {
    if (entry->name == name) return *entry;
    names.emplace_back(entry->name);
  }
  ThrowError(ErrorKind::kConfig,
             "{}: `{}` was given, but it must be one of {}.{}", what, name,
             fmt::join(names, ", "), DidYouMean(name, names));
}

}  // namespace isoloss::formats
