// Measures how long something takes.
#pragma once

#include <chrono>

namespace isoloss {

/// Returns the seconds from `begin` to now, on a clock that nobody sets.
inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace isoloss
