// Sums of counts from files, which may be anything.
#pragma once

#include <cstdint>
#include <limits>

namespace isoloss {

/// a + b, or the end of int64 that it would lie beyond.
inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  using Limits = std::numeric_limits<int64_t>;
  return a < 0 ? Limits::min() : Limits::max();
}

}  // namespace isoloss
