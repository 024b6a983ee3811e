// Checks that no row is lost, doubled, changed or misrouted on the way: the
// sums of hashes of sent and received rows must agree (docs/distributed.md,
// "Checks").
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/assignment.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

/// Hashes one row in one operation: its assignment, and 24 of its bytes, from
/// begin, middle and end. The message's CRC guards all bytes; this hash tells
/// one row from another. Rows may be empty. It is inline, because it runs for
/// every row of every operation.
inline uint64_t RowHash(transport::OpKind op, const Assignment& assignment,
                        std::span<const std::byte> row) {
  const auto mix = [](uint64_t hash) {  // SplitMix64's finaliser
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
    return hash ^ (hash >> 31);
  };
  constexpr size_t kWord = sizeof(uint64_t);
  uint64_t fingerprint = 0;
  if (row.size() < kWord) {
    if (!row.empty()) std::memcpy(&fingerprint, row.data(), row.size());
  } else {
    const size_t last = row.size() - kWord;
    for (const size_t at : {size_t{0}, last / 2, last}) {
      uint64_t word = 0;
      std::memcpy(&word, &row[at], kWord);
      fingerprint = std::rotl(fingerprint, 21) ^ word;
    }
  }
  const uint64_t place = uint64_t{assignment.token} << 32 |
                         uint64_t{assignment.slot} << 16 | assignment.expert;
  const uint64_t weight = uint64_t{std::bit_cast<uint32_t>(assignment.weight)}
                              << 8 |
                          static_cast<uint64_t>(op);
  // The factors are odd, so that neither part can hide the other.
  return mix(mix(place * 0x9E3779B97F4A7C15u ^ weight * 0xD6E8FEB86659FD93u) ^
             fingerprint);
}

/// Keeps the balances of one layer. For every rank that owns tokens, a balance
/// is the hashes of the rows sent for them minus the hashes of the rows
/// received, modulo 2^64. Each operation's balances end at zero, and so does
/// their sum. A sum of well-mixed hashes notices a lost, a doubled and a
/// misrouted row alike.
class Conservation {
 public:
  Conservation(transport::RankRange local, size_t ranks);

  /// These operations have balances; their numbers are consecutive.
  static constexpr std::array kOperations = {
      transport::OpKind::kDispatch, transport::OpKind::kCombine,
      transport::OpKind::kDispatchGradient,
      transport::OpKind::kCombineGradient};

  /// Notes that rank `rank` of this process sends or receives a row for tokens
  /// of `source`. Different ranks may do so on different threads.
  void Sent(transport::OpKind op, size_t rank, size_t source, uint64_t hash) {
    balance_.Row(rank - first_)[At(op, source)] += hash;
  }
  void Received(transport::OpKind op, size_t rank, size_t source,
                uint64_t hash) {
    balance_.Row(rank - first_)[At(op, source)] -= hash;
  }
  uint64_t Of(size_t rank, size_t source, transport::OpKind op) const {
    return balance_.Row(rank - first_)[At(op, source)];
  }
  /// Returns the balance of all operations together.
  uint64_t Of(size_t rank, size_t source) const {
    uint64_t sum = 0;
    for (const transport::OpKind op : kOperations) sum += Of(rank, source, op);
    return sum;
  }
  void Reset() { balance_.SetZero(); }

 private:
  static constexpr size_t Number(transport::OpKind op) {
    return static_cast<size_t>(op) - static_cast<size_t>(kOperations.front());
  }
  static_assert(static_cast<size_t>(kOperations.back()) -
                    static_cast<size_t>(kOperations.front()) + 1 ==
                kOperations.size());
  /// Returns the place in a row of balance_.
  size_t At(transport::OpKind op, size_t source) const {
    return Number(op) * ranks_ + source;
  }

  size_t first_;
  size_t ranks_;
  Matrix<uint64_t> balance_;  // [local ranks, operations * V]
};

}  // namespace isoloss::expert_parallel
