// Says which ranks own which tokens and which experts.
#pragma once

#include <cstddef>

namespace isoloss::expert_parallel {

/// Describes a mesh of V = ranks virtual ranks in `replicas` (EDP)
/// expert-parallel groups of consecutive ranks. Each group holds every expert
/// once, spread over its V / EDP ranks (the EP degree). Dense layers are
/// replicated over all V.
struct Topology {
  size_t experts = 1;
  size_t ranks = 1;           ///< V
  size_t replicas = 1;        ///< EDP
  size_t ranks_per_node = 8;  ///< G; a node never spans two groups

  /// Returns the number of ranks of one expert-parallel group.
  size_t group_ranks() const { return ranks / replicas; }
  size_t experts_per_rank() const { return experts / group_ranks(); }
  /// Returns G, or the size of the whole group if it is smaller than a node.
  size_t node_ranks() const {
    return ranks_per_node < group_ranks() ? ranks_per_node : group_ranks();
  }
  size_t nodes() const { return ranks / node_ranks(); }

  // NOLINTBEGIN(clang-analyzer-core.DivideZero): Validate refuses the zeros.
  size_t GroupOf(size_t rank) const { return rank / group_ranks(); }
  size_t NodeOf(size_t rank) const { return rank / node_ranks(); }
  // NOLINTEND(clang-analyzer-core.DivideZero)
  /// Returns the rank that holds `expert` for the tokens of `source`.
  size_t OwnerOf(size_t expert, size_t source) const {
    return GroupOf(source) * group_ranks() + expert / experts_per_rank();
  }
  /// Returns the first of the experts_per_rank() consecutive experts that
  /// `rank` holds.
  size_t FirstExpertOf(size_t rank) const {
    return rank % group_ranks() * experts_per_rank();
  }
  /// `rank` owns the tokens [TokenBegin(rank), TokenBegin(rank + 1)) of a batch
  /// of `tokens`.
  size_t TokenBegin(size_t rank, size_t tokens) const {
    return tokens * rank / ranks;
  }
  /// Inverts TokenBegin: returns the rank that owns `token`.
  size_t RankOfToken(size_t token, size_t tokens) const {
    return ((token + 1) * ranks - 1) / tokens;
  }
  /// Returns the rank on `node` that receives the rows that `source` sends to
  /// the node. It has the same place in its node as the source has (DeepEP's
  /// RDMA peer).
  size_t GatewayOf(size_t source, size_t node) const {
    return node * node_ranks() + source % node_ranks();
  }
};

/// Throws ConfigError at the first broken rule, with a message that starts with
/// `where`: replicas divides ranks, the EP degree divides experts, G divides
/// the EP degree or exceeds it.
void Validate(const Topology& topology, const char* where);

}  // namespace isoloss::expert_parallel
