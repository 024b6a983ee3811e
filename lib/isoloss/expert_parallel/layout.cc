#include "isoloss/expert_parallel/layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel {
namespace {

/// Adds 1 to `values[index]` unless this token has marked the index already.
void CountOnce(size_t index, uint32_t token_mark, std::span<uint32_t> marks,
               std::span<uint32_t> values) {
  if (marks[index] == token_mark) return;
  marks[index] = token_mark;
  ++values[index];
}

}  // namespace

Layout::Layout(const Topology& topology, size_t units, size_t padding,
               transport::RankRange local)
    : topology_(topology),
      units_{units, topology.ranks},
      padding_(padding),
      group_nodes_(topology.group_ranks() / topology.node_ranks()) {
  ISOLOSS_ASSERT(units % topology.ranks == 0 || topology.ranks % units == 0);
  rank_rows_at_ = units_.slices_per_rank() * topology.experts;
  node_rows_at_ = rank_rows_at_ + topology.group_ranks();
  contributions_.Resize(topology.ranks, node_rows_at_ + group_nodes_);
  assignments_.Resize(topology.ranks, topology.group_ranks());

  const auto hosted = static_cast<size_t>(local.size());
  const auto first = static_cast<size_t>(local.first);
  const size_t group = topology.group_ranks();
  ISOLOSS_ASSERT(hosted % group == 0 || group % hosted == 0);
  const bool whole_groups = hosted >= group;
  first_expert_ = whole_groups ? 0 : topology.FirstExpertOf(first);
  local_experts_ =
      whole_groups ? topology.experts : hosted * topology.experts_per_rank();
  first_source_ = topology.GroupOf(first) * group;
  sources_ = std::max(hosted, group);

  expert_begins_.assign(local_experts_ + 1, 0);
  list_begins_.resize(local_experts_ * sources_ * units_.slices_per_rank());
  next_row_.resize(list_begins_.size());
  tokens_per_expert_.resize(topology.experts);
  received_.resize(topology.ranks);
  rows_per_unit_.Resize(units, topology.experts);
}

size_t Layout::TokenBegin(size_t rank, size_t tokens) const {
  return std::clamp(topology_.TokenBegin(rank, tokens), share_.Begin(tokens),
                    share_.End(tokens));
}

size_t Layout::contribution_bytes() const {
  return contributions_.cols() * sizeof(uint32_t);
}

void Layout::Count(size_t rank, size_t tokens,
                   MatrixView<const int32_t> expert_ids,
                   std::span<std::byte> contribution) const {
  static thread_local std::vector<uint32_t> counts;
  static thread_local std::vector<uint32_t> marks;
  counts.assign(contributions_.cols(), 0);
  marks.assign(contributions_.cols(), 0);
  const std::span<uint32_t> rank_rows =
      std::span(counts).subspan(rank_rows_at_, topology_.group_ranks());
  const std::span<uint32_t> node_rows =
      std::span(counts).subspan(node_rows_at_, group_nodes_);
  const auto rank_marks = std::span(marks).subspan(rank_rows_at_);
  const auto node_marks = std::span(marks).subspan(node_rows_at_);

  const size_t begin = TokenBegin(rank, tokens);
  size_t slice = 0;
  for (size_t t = 0; t < expert_ids.rows(); ++t) {
    // Slices are whole units, whose ends follow the same formula as those of
    // ranks.
    while (slice + 1 < units_.slices_per_rank() &&
           begin + t >=
               tokens * units_.UnitOf(rank, slice + 1) / units_.units) {
      ++slice;
    }
    const auto mark = static_cast<uint32_t>(t + 1);
    for (size_t k = 0; k < expert_ids.cols(); ++k) {
      const auto expert = static_cast<size_t>(expert_ids(t, k));
      ISOLOSS_ASSERT(expert < topology_.experts);
      const size_t at = CountAt(slice, expert);
      ISOLOSS_ASSERT(marks[at] != mark);  // a token's ids are distinct
      marks[at] = mark;
      ++counts[at];
      const size_t target = expert / topology_.experts_per_rank();
      CountOnce(target, mark, rank_marks, rank_rows);
      CountOnce(target / topology_.node_ranks(), mark, node_marks, node_rows);
    }
  }
  std::memcpy(contribution.data(), counts.data(), contribution.size());
}

void Layout::Build(std::span<const std::byte> contributions, size_t tokens,
                   size_t slots) {
  ISOLOSS_ASSERT(contributions.size() ==
                 contributions_.size() * sizeof(uint32_t));
  std::memcpy(contributions_.data(), contributions.data(),
              contributions.size());
  tokens_ = tokens;
  AddUp(slots);
  PlaceLists();
}

/// Adds up the contributions and computes the counts.
void Layout::AddUp(size_t slots) {
  if (share_.index == 0) {
    counts_ = {};
    std::fill(tokens_per_expert_.begin(), tokens_per_expert_.end(), 0);
    std::fill(received_.begin(), received_.end(), 0);
  }
  rows_per_unit_.SetZero();
  for (size_t source = 0; source < topology_.ranks; ++source) {
    AddUpSource(source, slots);
  }
  for (size_t unit = 0; unit < units_.units; ++unit) {
    for (size_t e = 0; e < topology_.experts; ++e) {
      const uint32_t rows = rows_per_unit_(unit, e);
      tokens_per_expert_[e] += rows;
      counts_.padding_rows += static_cast<int64_t>(Padded(rows) - rows);
    }
  }
  counts_.max_rows_per_expert =
      *std::max_element(tokens_per_expert_.begin(), tokens_per_expert_.end());
  counts_.empty_experts =
      std::count(tokens_per_expert_.begin(), tokens_per_expert_.end(), 0);
  for (size_t rank = 0; rank < topology_.ranks; ++rank) {
    const size_t first = topology_.GroupOf(rank) * topology_.group_ranks();
    for (size_t i = 0; i < topology_.group_ranks(); ++i) {
      received_[rank] += static_cast<int64_t>(Assignments(first + i, rank));
    }
  }
  counts_.max_rows_per_rank =
      *std::max_element(received_.begin(), received_.end());
}

void Layout::AddUpSource(size_t source, size_t slots) {
  const std::span<const uint32_t> row = Of(source);
  uint32_t* to_target = assignments_.Row(source);
  std::fill_n(to_target, assignments_.cols(), 0);
  for (size_t slice = 0; slice < units_.slices_per_rank(); ++slice) {
    const uint32_t* per_expert = row.data() + CountAt(slice, 0);
    uint32_t* unit = rows_per_unit_.Row(units_.UnitOf(source, slice));
    for (size_t e = 0; e < topology_.experts; ++e) {
      to_target[e / topology_.experts_per_rank()] += per_expert[e];
      unit[e] += per_expert[e];
    }
  }
  const size_t sum =
      std::accumulate(to_target, to_target + assignments_.cols(), size_t{0});
  const size_t owned =
      TokenBegin(source + 1, tokens_) - TokenBegin(source, tokens_);
  if (sum != owned * slots) {
    ThrowError(ErrorKind::kTransport,
               "count exchange: rank {} announces {} assignments, but owns {} "
               "tokens of {} slots each: {}. Tokens were dropped or counted "
               "twice.",
               source, sum, owned, slots, owned * slots);
  }
  const auto sum_of = [](std::span<const uint32_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  const size_t group = topology_.group_ranks();
  counts_.assignments += static_cast<int64_t>(sum);
  counts_.rank_rows += sum_of(row.subspan(rank_rows_at_, group));
  counts_.node_rows += sum_of(row.subspan(node_rows_at_, group_nodes_));
}

/// The lists have the order (expert, unit, source), and each unit is padded.
void Layout::PlaceLists() {
  unit_ends_.clear();
  unit_rows_.clear();
  padding_runs_.clear();
  size_t next = 0;
  for (size_t e = 0; e < local_experts_; ++e) {
    const size_t begin = next;
    size_t unit_begin = begin;
    expert_begins_[e] = begin;
    const size_t slices = units_.slices_per_rank();
    for (size_t i = 0; i < sources_ * slices; ++i) {
      const size_t source = first_source_ + i / slices;
      list_begins_[SlotOf(e, source, i % slices)] = static_cast<uint32_t>(next);
      next += Of(source)[CountAt(i % slices, first_expert_ + e)];
      const size_t unit = units_.UnitOf(source, i % slices);
      if (unit < share_.Begin(units_.units) ||
          unit >= share_.End(units_.units)) {
        continue;  // no row of this share is in the unit
      }
      const bool last = i + 1 == sources_ * slices;
      if (!last && units_.UnitOf(first_source_ + (i + 1) / slices,
                                 (i + 1) % slices) == unit) {
        continue;
      }
      const size_t end = unit_begin + Padded(next - unit_begin);
      if (end > next) padding_runs_.push_back({next, end});
      if (padding_ > 1) unit_rows_.push_back(next - unit_begin);
      next = unit_begin = end;
      if (units_.units > 1) unit_ends_.push_back(next - begin);
    }
  }
  expert_begins_.back() = next;
  std::copy(list_begins_.begin(), list_begins_.end(), next_row_.begin());
}

size_t Layout::NodeAssignments(size_t source, size_t node) const {
  const size_t first = node % group_nodes_ * topology_.node_ranks();
  const uint32_t* row = assignments_.Row(source) + first;
  return std::accumulate(row, row + topology_.node_ranks(), size_t{0});
}

size_t Layout::Place(size_t expert, size_t token, size_t source) {
  const size_t slices = units_.slices_per_rank();
  size_t slice = 0;
  if (slices > 1) {
    const size_t unit = ((token + 1) * units_.units - 1) / tokens_;
    slice = unit - source * slices;
  }
  const size_t at = SlotOf(expert - first_expert_, source, slice);
  const size_t row = next_row_[at]++;
  const uint32_t announced = Of(source)[CountAt(slice, expert)];
  if (row - list_begins_[at] >= announced) {
    ThrowError(
        ErrorKind::kTransport,
        "dispatch: rank {} sent more rows for expert {} than the {} that "
        "the count exchange announced. A token was doubled or sent "
        "astray.",
        source, expert, announced);
  }
  return row;
}

void Layout::CheckPlaced(size_t target) const {
  const size_t slices = units_.slices_per_rank();
  const size_t first_local = topology_.FirstExpertOf(target) - first_expert_;
  const size_t group = topology_.group_ranks();
  const size_t first_source = topology_.GroupOf(target) * group;
  for (size_t e = first_local; e < first_local + topology_.experts_per_rank();
       ++e) {
    for (size_t i = 0; i < group * slices; ++i) {
      const size_t source = first_source + i / slices;
      const size_t at = SlotOf(e, source, i % slices);
      const size_t placed = next_row_[at] - list_begins_[at];
      const size_t announced =
          Of(source)[CountAt(i % slices, first_expert_ + e)];
      if (placed == announced) continue;
      ThrowError(ErrorKind::kTransport,
                 "dispatch: rank {} received {} rows of rank {} for expert "
                 "{}, but the count exchange announced {}. A token was lost, "
                 "doubled or sent astray.",
                 target, placed, source, first_expert_ + e, announced);
    }
  }
}

}  // namespace isoloss::expert_parallel
