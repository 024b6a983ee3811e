// Looks up by name the entries that a .def file registers, and the values of a
// table.
#pragma once

#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/named.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::formats {

[[noreturn]] inline void ThrowUnknownName(
    std::string_view name, std::string_view what,
    const std::vector<std::string>& names) {
  ThrowError(ErrorKind::kConfig,
             "{}: `{}` was given, but it must be one of {}.{}", what, name,
             fmt::join(names, ", "), DidYouMean(name, names));
}

/// Returns the entry of that name.
/// Errors   ConfigError that lists the names and suggests the nearest.
template <typename T>
const T& RegisteredByName(std::span<const T* const> entries,
                          std::string_view name, std::string_view what) {
  std::vector<std::string> names;
  for (const T* entry : entries) {
    if (entry->name == name) return *entry;
    names.emplace_back(entry->name);
  }
  ThrowUnknownName(name, what, names);
}

/// Returns the value of that name in a table.
/// Errors   as RegisteredByName.
template <typename T, size_t kCount>
T ValueByName(const Named<T> (&table)[kCount], std::string_view name,
              std::string_view what) {
  std::vector<std::string> names;
  for (const Named<T>& entry : table) {
    if (entry.name == name) return entry.value;
    names.emplace_back(entry.name);
  }
  ThrowUnknownName(name, what, names);
}

}  // namespace isoloss::formats
