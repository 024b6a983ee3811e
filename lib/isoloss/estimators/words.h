// Finds the words that files and reports use for values.
#pragma once

#include <string>

#include "isoloss/base/named.h"

namespace isoloss::estimators {

/// Returns the word of a list that stands for a value.
template <typename T, size_t N>
std::string WordOf(const Named<T> (&names)[N], T value) {
  for (const Named<T>& named : names) {
    if (named.value == value) return std::string(named.name);
  }
  return {};
}

}  // namespace isoloss::estimators
