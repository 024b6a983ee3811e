#pragma once

#include <string_view>

namespace isoloss {

/// A word of files and logs, and what it means.
template <typename T>
struct Named {
  std::string_view name;
  T value;
};

}  // namespace isoloss
