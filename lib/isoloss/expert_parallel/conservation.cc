#include "isoloss/expert_parallel/conservation.h"

#include <algorithm>
#include <bit>

#include "isoloss/base/digest.h"

namespace isoloss::expert_parallel {

uint64_t RowHash(transport::OpKind op, const Assignment& assignment,
                 std::span<const std::byte> row) {
  constexpr size_t kFingerprint = 64;
  // Odd constants of SplitMix64 spread neighbouring numbers over all bits.
  uint64_t hash = DigestOf(row.data(), std::min(row.size(), kFingerprint));
  hash ^= (uint64_t{assignment.token} << 32 | uint64_t{assignment.slot} << 16 |
           uint64_t{assignment.expert}) *
          0x9E3779B97F4A7C15u;
  hash ^= (uint64_t{std::bit_cast<uint32_t>(assignment.weight)} << 8 |
           static_cast<uint64_t>(op)) *
          0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  return hash ^ (hash >> 31);
}

Conservation::Conservation(transport::RankRange local, size_t ranks)
    : first_(static_cast<size_t>(local.first)),
      balance_(static_cast<size_t>(local.size()), ranks) {}

}  // namespace isoloss::expert_parallel
