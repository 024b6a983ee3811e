// Defines the count exchange of one dispatch. Before a row moves, every rank
// knows the counts of all ranks, and where each row goes in the experts' lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

/// Divides the batch into U consecutive equal shares, whose rows an expert
/// lists apart. A rank's tokens lie in one unit, or are several whole units,
/// which are called its slices.
struct DispatchUnits {
  size_t units = 1;  ///< U; divides the ranks or is a multiple of them
  size_t ranks = 1;

  size_t slices_per_rank() const { return units > ranks ? units / ranks : 1; }
  /// Returns the unit of slice `slice` of `rank`.
  size_t UnitOf(size_t rank, size_t slice) const {
    return units > ranks ? rank * slices_per_rank() + slice
                         : rank * units / ranks;
  }
};

/// A layout is built from the counts that all ranks exchange, and is identical
/// on all of them. It places the rows of one share of a batch; its counts of
/// tokens and rows add up over the shares.
class Layout {
 public:
  /// `local` are the ranks of this process: whole groups, or an equal part of
  /// one.
  Layout(const Topology& topology, size_t units, size_t padding,
         transport::RankRange local);

  /// The following calls work on `share` of the batch.
  void BeginShare(const BatchShare& share) { share_ = share; }
  /// Returns the first token of the share that `rank`, or a higher one, owns.
  /// `tokens` are the batch's.
  size_t TokenBegin(size_t rank, size_t tokens) const;

  /// Returns the size of one rank's contribution to the count exchange.
  size_t contribution_bytes() const;
  /// Writes the contribution of `rank`.
  /// Shapes   expert_ids: the rank's own tokens of the share, [tokens, K].
  /// Errors   none; asserts that ids are in [0, E) and distinct within a token.
  void Count(size_t rank, size_t tokens, MatrixView<const int32_t> expert_ids,
             std::span<std::byte> contribution) const;

  /// Takes the contributions of all ranks. `tokens` and `slots` are the
  /// batch's.
  /// Errors   TransportError that names the rank whose counts do not add up to
  ///          its tokens times slots.
  void Build(std::span<const std::byte> contributions, size_t tokens,
             size_t slots);

  // These counts belong to the last Build, tokens() to the batch. `source` is
  // the rank of a token, in the whole mesh; `target` is the rank of an expert,
  // in the group of `source`.
  size_t tokens() const { return tokens_; }
  size_t Assignments(size_t source, size_t target) const {
    return assignments_(source, InGroup(target));
  }
  size_t NodeAssignments(size_t source, size_t node) const;
  /// Returns the number of distinct tokens of `source` with an expert on
  /// `target`, or on `node`.
  size_t RankRows(size_t source, size_t target) const {
    return Of(source)[rank_rows_at_ + InGroup(target)];
  }
  size_t NodeRows(size_t source, size_t node) const {
    return Of(source)[node_rows_at_ + node % group_nodes_];
  }

  std::span<const size_t> expert_begins() const { return expert_begins_; }
  std::span<const size_t> unit_ends() const { return unit_ends_; }
  /// Returns the rows of each unit of each expert without padding; empty if the
  /// options ask for no padding.
  std::span<const size_t> unit_rows() const { return unit_rows_; }
  size_t rows() const { return expert_begins_.back(); }
  /// Is a run of padding rows, [first, end).
  struct Run {
    size_t first;
    size_t end;
  };
  std::span<const Run> padding() const { return padding_runs_; }

  /// Returns the place of the next row that `expert` of this process receives
  /// of `token`, which `source` owns. Rows of one slice of one source arrive in
  /// the order of their tokens. Different threads may place the rows of
  /// different sources.
  size_t Place(size_t expert, size_t token, size_t source);
  /// Throws TransportError if `target` (of this process) did not get the rows
  /// that the counts announce for one of its experts. Call it after all rows
  /// were placed.
  void CheckPlaced(size_t target) const;

  size_t SourceOf(size_t token) const {
    return topology_.RankOfToken(token, tokens_);
  }
  std::span<const int64_t> tokens_per_expert() const {
    return tokens_per_expert_;
  }
  const DispatchCounts& counts() const { return counts_; }

 private:
  std::span<const uint32_t> Of(size_t source) const {
    return {contributions_.Row(source), contributions_.cols()};
  }
  /// Returns a rank's number within its group. It avoids a division where it
  /// can, because V * V messages are sized.
  size_t InGroup(size_t rank) const {
    return topology_.replicas == 1 ? rank : rank % topology_.group_ranks();
  }
  size_t CountAt(size_t slice, size_t expert) const {
    return slice * topology_.experts + expert;
  }
  size_t Padded(size_t rows) const {
    return (rows + padding_ - 1) / padding_ * padding_;
  }
  void AddUp(size_t slots);
  void AddUpSource(size_t source, size_t slots);
  void PlaceLists();
  size_t SlotOf(size_t expert, size_t source, size_t slice) const {
    return (expert * sources_ + (source - first_source_)) *
               units_.slices_per_rank() +
           slice;
  }

  Topology topology_;
  DispatchUnits units_;
  size_t padding_;
  size_t group_nodes_;  // nodes of one group
  size_t rank_rows_at_;
  size_t node_rows_at_;
  size_t first_expert_;  // of this process
  size_t local_experts_;
  size_t first_source_;  // ranks of this process's groups
  size_t sources_;

  BatchShare share_;
  size_t tokens_ = 0;  // of the batch
  // Row `rank` holds the assignments per expert, [slices, E], then the distinct
  // tokens per rank, [group ranks], and per node, [group nodes].
  Matrix<uint32_t> contributions_;
  Matrix<uint32_t> assignments_;    // [V, group ranks]
  Matrix<uint32_t> rows_per_unit_;  // [U, E]
  std::vector<size_t> expert_begins_;
  std::vector<size_t> unit_ends_;
  std::vector<size_t> unit_rows_;
  std::vector<Run> padding_runs_;
  std::vector<uint32_t> list_begins_;  // [local experts, sources, slices]
  std::vector<uint32_t> next_row_;     // the same, moved on by Place
  // These two have the counts of the batch up to this share.
  std::vector<int64_t> tokens_per_expert_;
  std::vector<int64_t> received_;  // [V] assignments to experts of the rank
  DispatchCounts counts_;
};

}  // namespace isoloss::expert_parallel
