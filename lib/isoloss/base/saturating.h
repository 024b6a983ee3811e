// Sums and products of counts from files, which may be anything.
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

/// a * b of two counts, or the largest of int64 if it is beyond.
inline int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return std::numeric_limits<int64_t>::max();
}

}  // namespace isoloss
