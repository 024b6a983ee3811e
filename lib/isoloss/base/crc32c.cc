#include "isoloss/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace isoloss {
namespace {

#if defined(__x86_64__)
/// ISA-L leaves values in the upper halves of vector registers. Until they are
/// cleared, Intel processors run every SSE instruction of the thread several
/// times more slowly: the next run's initial weights took seconds.
__attribute__((target("avx"))) void ClearUpperHalves() {
  __builtin_ia32_vzeroupper();
}
#endif

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes) {
  constexpr size_t kLongest = size_t{1} << 30;  // ISA-L counts in int
  uint32_t crc = 0xFFFFFFFF;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kLongest));
    // ISA-L's prototype lacks a const; it only reads.
    auto* data = const_cast<unsigned char*>(
        reinterpret_cast<const unsigned char*>(part.data()));
    crc = crc32_iscsi(data, static_cast<int>(part.size()), crc);
    bytes = bytes.subspan(part.size());
  }
#if defined(__x86_64__)
  static const bool has_upper_halves = __builtin_cpu_supports("avx") != 0;
  if (has_upper_halves) ClearUpperHalves();
#endif
  return ~crc;
}

}  // namespace isoloss
