// What a call left in the upper halves of this thread's vector registers.
#pragma once

#include <cstdint>
#include <optional>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace isoloss::test_support {

/// Are they in their initial state? If not, Intel processors run each SSE
/// instruction of the thread several times more slowly. None where the
/// processor can't tell.
inline std::optional<bool> UpperHalvesAreClear() {
#if defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kHasInUseMask = 1u << 2;  // XGETBV with ECX = 1
  if (__get_cpuid_count(0xD, 1, &a, &b, &c, &d) == 0) return std::nullopt;
  if ((a & kHasInUseMask) == 0) return std::nullopt;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
  constexpr uint32_t kUpperHalves = 1u << 2 | 1u << 6;  // of YMM, of ZMM 0-15
  return (a & kUpperHalves) == 0;
#else
  return std::nullopt;
#endif
}

}  // namespace isoloss::test_support
