// Compares and adds recorded numbers, for the rules of relations.h alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace isoloss::runlog {

/// Numbers that follow from recorded ones by a few FP64 operations agree to
/// this tolerance.
inline constexpr double kExact = 1e-12;

/// Returns false for NaN.
inline bool Near(double a, double b, double tolerance = kExact) {
  return a == b ||
         std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

/// Sums are FP64, so that no forged value overflows; counts stay exact.
template <typename T>
double Sum(const std::vector<T>& values, size_t begin, size_t count) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
  return std::accumulate(
      first, first + static_cast<std::ptrdiff_t>(count), 0.0,
      [](double sum, T value) { return sum + static_cast<double>(value); });
}

inline size_t Size(int64_t extent) { return static_cast<size_t>(extent); }

}  // namespace isoloss::runlog
