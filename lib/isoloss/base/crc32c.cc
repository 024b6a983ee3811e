#include "isoloss/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace isoloss {

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
  return ~crc;
}

}  // namespace isoloss
