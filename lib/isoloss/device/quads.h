// Four neighbours in memory, which a device moves at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isoloss/base/matrix.h"
#include "isoloss/device/kernel.h"

namespace isoloss::device {

/// So many floats that are aligned to their size are a quad.
inline constexpr uint32_t kQuad = 4;
inline constexpr size_t kQuadBytes = kQuad * sizeof(float);

/// Tells whether a matrix consists of quads, but for what is left at the end of
/// a row. One row may be as long as it likes.
inline bool AreQuads(const MatrixView<const float>& values) {
  return reinterpret_cast<uintptr_t>(values.data()) % kQuadBytes == 0 &&
         (values.rows() <= 1 || values.stride() % kQuad == 0);
}

/// A part is a quad or one float. Its alignment makes a device move it at once.
template <size_t kCount>
struct alignas(kCount * sizeof(float)) Part {
  static_assert(kCount == kQuad || kCount == 1);
  float of[kCount];
};

template <size_t kCount>
constexpr void LoadPart(const float* from, float (&to)[kCount]) {
  const Part<kCount> part = *reinterpret_cast<const Part<kCount>*>(from);
  ISOLOSS_UNROLL
  for (size_t i = 0; i < kCount; ++i) to[i] = part.of[i];
}

template <size_t kCount>
constexpr void StorePart(const float (&from)[kCount], float* to) {
  Part<kCount> part = {};
  ISOLOSS_UNROLL
  for (size_t i = 0; i < kCount; ++i) part.of[i] = from[i];
  *reinterpret_cast<Part<kCount>*>(to) = part;
}

/// Calls use(i, width) for each part of [0, cols) that a thread of kThreads
/// has; decltype(width)::value is the number of its elements.
template <size_t kThreads, typename Use>
constexpr void ForEachPart(size_t thread, size_t cols, bool has_quads,
                           const Use& use) {
  if (has_quads) {
    for (size_t i = thread * kQuad; i < cols; i += kThreads * kQuad) {
      use(i, std::integral_constant<size_t, kQuad>());
    }
  } else {
    for (size_t i = thread; i < cols; i += kThreads) {
      use(i, std::integral_constant<size_t, 1>());
    }
  }
}

}  // namespace isoloss::device
