// Four neighbours in memory, which a device moves at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isoloss/base/matrix.h"
#include "isoloss/device/kernel.h"
#include "isoloss/kernels/rounding.h"

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

struct alignas(kQuadBytes) Quad {
  float of[kQuad];
};

struct alignas(kQuadBytes / 2) Pair {
  float of[2];
};

/// A part is a quad or one float.
template <size_t kCount>
constexpr void LoadPart(const float* from, float (&to)[kCount]) {
  static_assert(kCount == kQuad || kCount == 1);
  if constexpr (kCount == kQuad) {
    const Quad quad = *reinterpret_cast<const Quad*>(from);
    ISOLOSS_UNROLL
    for (size_t i = 0; i < kQuad; ++i) to[i] = quad.of[i];
  } else {
    to[0] = *from;
  }
}

/// A part may be a pair, too.
template <size_t kCount>
constexpr void StorePart(const float (&from)[kCount], float* to) {
  static_assert(kCount == kQuad || kCount == 2 || kCount == 1);
  if constexpr (kCount == kQuad) {
#ifdef __CUDA_ARCH__
    // nvcc splits some quads into four floats.
    asm volatile("st.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]),
                 "f"(from[1]), "f"(from[2]), "f"(from[3])
                 : "memory");
#else
    *reinterpret_cast<Quad*>(to) = {{from[0], from[1], from[2], from[3]}};
#endif
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<Pair*>(to) = {{from[0], from[1]}};
  } else {
    *to = from[0];
  }
}

/// Rounds values in place. The branch is around the loop: a device would branch
/// for each value.
template <size_t kCount>
constexpr void RoundAll(kernels::Rounding rounding, float (&values)[kCount]) {
  if (rounding == kernels::Rounding::kFp32) return;
  ISOLOSS_UNROLL
  for (float& value : values) value = kernels::Rounded(value, rounding);
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
