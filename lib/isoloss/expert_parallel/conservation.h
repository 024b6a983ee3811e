// Nothing is lost, doubled, changed or mistaken on the way: sums of hashes of
// what was sent and received must agree (docs/expert-parallel.md, section 3.6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/assignment.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

/// Hash of one row in one operation: which assignment it belongs to and what it
/// begins with (its CRC guards the rest; this tells one row from another).
uint64_t RowHash(transport::OpKind op, const Assignment& assignment,
                 std::span<const std::byte> row);

/// Balances of one layer: for every rank that owns tokens, the hashes of what
/// was sent for them minus those of what was received, modulo 2^64. They end at
/// zero. A sum of well-mixed hashes notices a lost, a doubled and a misrouted
/// row alike.
class Conservation {
 public:
  Conservation(transport::RankRange local, size_t ranks);

  /// Rank `rank` of this process sends or receives for tokens of `source`.
  /// Different ranks may do so on different threads.
  void Sent(size_t rank, size_t source, uint64_t hash) {
    balance_.Row(rank - first_)[source] += hash;
  }
  void Received(size_t rank, size_t source, uint64_t hash) {
    balance_.Row(rank - first_)[source] -= hash;
  }
  std::span<const uint64_t> Of(size_t rank) const {
    return {balance_.Row(rank - first_), balance_.cols()};
  }
  void Reset() { balance_.SetZero(); }

 private:
  size_t first_;
  Matrix<uint64_t> balance_;  // [local ranks, V]
};

}  // namespace isoloss::expert_parallel
