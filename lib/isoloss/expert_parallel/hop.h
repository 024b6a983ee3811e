// Describes one hop of a route: what one rank sends to and receives from each
// other rank. A dispatch builds it, and the three operations that follow along
// the same way use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/expert_parallel/assignment.h"

namespace isoloss::expert_parallel {

/// The rows that come back for one item are added in one of these orders.
enum class FoldOrder {
  kSlot,      ///< one row per assignment, in slot order
  kExpert,    ///< one row per assignment, by ascending expert
  kRank,      ///< one row per destination, ascending
  kLastSlot,  ///< one row per destination, by its last slot
};

/// Returns true if an item sends one row per destination, whatever number of
/// its experts are there.
inline bool SharesRows(FoldOrder order) {
  return order == FoldOrder::kRank || order == FoldOrder::kLastSlot;
}

/// Is the sender's side. An item is a token (at its own rank) or a row to
/// forward (at a gateway). Each item has assignments in slot order.
class SendSide {
 public:
  /// Shapes   item_begins [items + 1]: item i has assignments [begins[i],
  ///          begins[i + 1]); assignments and destinations: one per
  ///          assignment, destinations in [0, ranks).
  void Build(std::span<const uint32_t> item_begins,
             std::span<const Assignment> assignments,
             std::span<const uint32_t> destinations, FoldOrder order,
             size_t ranks);

  size_t items() const { return fold_begins_.size() - 1; }
  /// Rows and assignments are numbered by destination, then item.
  size_t rows() const { return item_of_row_.size(); }
  size_t RowBegin(size_t destination) const { return row_begins_[destination]; }
  size_t RowCount(size_t destination) const {
    return row_begins_[destination + 1] - row_begins_[destination];
  }
  size_t TagBegin(size_t destination) const { return tag_begins_[destination]; }
  size_t TagCount(size_t destination) const {
    return tag_begins_[destination + 1] - tag_begins_[destination];
  }
  size_t ItemOfRow(size_t row) const { return item_of_row_[row]; }
  /// Returns the number, in Build's order, of the assignment that is sent as
  /// number `tag`.
  size_t AssignmentOfTag(size_t tag) const { return assignment_of_tag_[tag]; }
  /// Returns the row that carries the assignment `tag`, counted within its
  /// message.
  uint32_t RowOfTag(size_t tag) const { return row_of_tag_[tag]; }
  /// Returns the rows that come back for `item`, in the order in which they are
  /// added.
  std::span<const int32_t> Fold(size_t item) const {
    return std::span(fold_rows_)
        .subspan(fold_begins_[item],
                 fold_begins_[item + 1] - fold_begins_[item]);
  }
  /// Returns the folds of all items, one after the other.
  std::span<const int32_t> folds() const { return fold_rows_; }
  /// Returns where the fold of each item begins among them, [items + 1].
  std::span<const uint32_t> fold_begins() const { return fold_begins_; }

 private:
  struct Peer {
    uint32_t destination;
    int32_t row;
  };

  void CountRows(std::span<const uint32_t> item_begins,
                 std::span<const uint32_t> destinations, bool shared);
  void FoldItem(std::span<const Assignment> assignments, FoldOrder order);

  std::vector<uint32_t> row_begins_;  // [ranks + 1]
  std::vector<uint32_t> tag_begins_;  // [ranks + 1]
  std::vector<uint32_t> item_of_row_;
  std::vector<uint32_t> assignment_of_tag_;
  std::vector<uint32_t> row_of_tag_;
  std::vector<uint32_t> fold_begins_ = {0};  // [items + 1]
  std::vector<int32_t> fold_rows_;
  // Only Build uses these.
  std::vector<uint32_t> next_row_;
  std::vector<uint32_t> next_tag_;
  std::vector<Peer> peers_;  // of one item, by last slot
};

/// Is the receiver's side. Rows and assignments are ordered by sender, then as
/// in the message.
struct ReceiveSide {
  std::vector<uint32_t> row_begins;  // [ranks + 1]
  std::vector<uint32_t> tag_begins;  // [ranks + 1]
  /// The field `row` is counted from the rank's first received row.
  std::vector<Assignment> tags;
  /// Row r carries tags [tag_of_row[r], tag_of_row[r + 1]), [rows + 1].
  std::vector<uint32_t> tag_of_row;

  size_t rows() const { return row_begins.back(); }
  size_t RowCount(size_t sender) const {
    return row_begins[sender + 1] - row_begins[sender];
  }
  size_t TagCount(size_t sender) const {
    return tag_begins[sender + 1] - tag_begins[sender];
  }
  /// Forgets the last dispatch; `ranks` senders will follow in order.
  void Clear(size_t ranks);
  /// Takes the assignments of a message of `sender` with `rows` rows.
  /// Errors   TransportError if rows do not ascend from 0 to the last one, or
  ///          the slots within one do not ascend.
  void Take(size_t receiver, size_t sender, size_t rows,
            std::span<const std::byte> tag_bytes);
};

}  // namespace isoloss::expert_parallel
