#include "isoloss/expert_parallel/hop.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel {

/// Fills row_begins_ and tag_begins_.
void SendSide::CountRows(std::span<const uint32_t> item_begins,
                         std::span<const uint32_t> destinations, bool shared) {
  for (size_t item = 0; item + 1 < item_begins.size(); ++item) {
    const auto of_item = destinations.subspan(
        item_begins[item], item_begins[item + 1] - item_begins[item]);
    for (auto at = of_item.begin(); at != of_item.end(); ++at) {
      ++tag_begins_[*at + 1];
      const bool first = std::find(of_item.begin(), at, *at) == at;
      if (first || !shared) ++row_begins_[*at + 1];
    }
  }
  std::partial_sum(tag_begins_.begin(), tag_begins_.end(), tag_begins_.begin());
  std::partial_sum(row_begins_.begin(), row_begins_.end(), row_begins_.begin());
}

void SendSide::Build(std::span<const uint32_t> item_begins,
                     std::span<const Assignment> assignments,
                     std::span<const uint32_t> destinations, FoldOrder order,
                     size_t ranks) {
  const bool shared = SharesRows(order);
  row_begins_.assign(ranks + 1, 0);
  tag_begins_.assign(ranks + 1, 0);
  CountRows(item_begins, destinations, shared);
  item_of_row_.resize(row_begins_.back());
  assignment_of_tag_.resize(assignments.size());
  row_of_tag_.resize(assignments.size());
  next_row_.assign(row_begins_.begin(), row_begins_.end() - 1);
  next_tag_.assign(tag_begins_.begin(), tag_begins_.end() - 1);
  fold_begins_.assign(1, 0);
  fold_rows_.clear();

  for (size_t item = 0; item + 1 < item_begins.size(); ++item) {
    peers_.clear();
    const size_t begin = item_begins[item];
    const size_t end = item_begins[item + 1];
    for (size_t i = begin; i < end; ++i) {
      const uint32_t to = destinations[i];
      const auto known = std::find_if(
          peers_.begin(), peers_.end(),
          [to](const Peer& peer) { return peer.destination == to; });
      Peer peer = {to, 0};
      if (shared && known != peers_.end()) {
        peer = *known;  // and moves to the end: this is its last slot so far
        peers_.erase(known);
      } else {
        peer.row = static_cast<int32_t>(next_row_[to]++);
        item_of_row_[static_cast<size_t>(peer.row)] =
            static_cast<uint32_t>(item);
      }
      peers_.push_back(peer);
      const uint32_t tag = next_tag_[to]++;
      assignment_of_tag_[tag] = static_cast<uint32_t>(i);
      row_of_tag_[tag] = static_cast<uint32_t>(peer.row) - row_begins_[to];
    }
    FoldItem(assignments.subspan(begin, end - begin), order);
  }
}

/// Appends the rows of peers_ in the order of the fold.
void SendSide::FoldItem(std::span<const Assignment> assignments,
                        FoldOrder order) {
  const auto first = static_cast<std::ptrdiff_t>(fold_rows_.size());
  if (order == FoldOrder::kExpert) {
    static thread_local std::vector<size_t> by_expert;
    by_expert.resize(assignments.size());
    std::iota(by_expert.begin(), by_expert.end(), size_t{0});
    std::sort(by_expert.begin(), by_expert.end(), [&](size_t a, size_t b) {
      return assignments[a].expert < assignments[b].expert;
    });
    for (const size_t i : by_expert) fold_rows_.push_back(peers_[i].row);
  } else {
    for (const Peer& peer : peers_) fold_rows_.push_back(peer.row);
  }
  // Rows are numbered by destination.
  if (order == FoldOrder::kRank) {
    std::sort(fold_rows_.begin() + first, fold_rows_.end());
  }
  fold_begins_.push_back(static_cast<uint32_t>(fold_rows_.size()));
}

void ReceiveSide::Clear(size_t ranks) {
  row_begins.assign(1, 0);
  tag_begins.assign(1, 0);
  row_begins.reserve(ranks + 1);
  tag_begins.reserve(ranks + 1);
  tags.clear();
  tag_of_row.assign(1, 0);
}

void ReceiveSide::Take(size_t receiver, size_t sender, size_t rows,
                       std::span<const std::byte> tag_bytes) {
  const size_t first = tags.size();
  const uint32_t first_row = row_begins.back();
  tags.resize(first + tag_bytes.size() / sizeof(Assignment));
  if (!tag_bytes.empty()) {
    std::memcpy(tags.data() + first, tag_bytes.data(), tag_bytes.size());
  }
  uint32_t row = 0;  // rows begun so far
  for (size_t i = first; i < tags.size(); ++i) {
    Assignment& tag = tags[i];
    const bool same = row > 0 && tag.row == row - 1;
    const bool in_order =
        same ? tag.slot > tags[i - 1].slot && tag.token == tags[i - 1].token
             : tag.row == row;
    if (!in_order || tag.row >= rows) {
      ThrowError(ErrorKind::kTransport,
                 "dispatch: rank {} received from rank {} an assignment of row "
                 "{} of {} (token {}, slot {}) out of order. The message was "
                 "made wrongly.",
                 receiver, sender, tag.row, rows, tag.token, tag.slot);
    }
    if (!same) {
      if (row > 0) tag_of_row.push_back(static_cast<uint32_t>(i));
      ++row;
    }
    tag.row += first_row;
  }
  if (row != rows) {
    ThrowError(ErrorKind::kTransport,
               "dispatch: rank {} received from rank {} {} rows, of which {} "
               "belong to no token. The message was made wrongly.",
               receiver, sender, rows, rows - row);
  }
  if (row > 0) tag_of_row.push_back(static_cast<uint32_t>(tags.size()));
  row_begins.push_back(first_row + row);
  tag_begins.push_back(static_cast<uint32_t>(tags.size()));
}

}  // namespace isoloss::expert_parallel
