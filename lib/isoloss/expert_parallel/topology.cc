#include "isoloss/expert_parallel/topology.h"

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel {
namespace {

void RequireSome(const char* where, const char* what, size_t count) {
  if (count > 0) return;
  ThrowError(ErrorKind::kConfig,
             "{} {} is 0, but must be at least 1. Give a number.", where, what);
}

}  // namespace

void Validate(const Topology& topology, const char* where) {
  RequireSome(where, "experts", topology.experts);
  RequireSome(where, "ranks", topology.ranks);
  RequireSome(where, "replicas", topology.replicas);
  RequireSome(where, "ranks_per_node", topology.ranks_per_node);
  if (topology.ranks % topology.replicas != 0) {
    ThrowError(ErrorKind::kConfig,
               "{} ranks is {} and replicas is {}, but replicas are groups of "
               "equally many ranks. Choose a divisor of ranks.",
               where, topology.ranks, topology.replicas);
  }
  // Assignments travel with 16 bits for the expert.
  constexpr size_t kMaxExperts = size_t{1} << 16;
  if (topology.experts > kMaxExperts && topology.ranks > 1) {
    ThrowError(ErrorKind::kConfig,
               "{} experts is {}, but at most {} can be spread over several "
               "ranks. Use one rank or fewer experts.",
               where, topology.experts, kMaxExperts);
  }
  const size_t degree = topology.group_ranks();
  if (topology.experts % degree != 0) {
    ThrowError(ErrorKind::kConfig,
               "{} experts is {} and the expert-parallel degree (ranks / "
               "replicas) is {}, but each rank of a group holds equally many "
               "experts. Choose a degree that divides the experts.",
               where, topology.experts, degree);
  }
  if (topology.ranks_per_node < degree &&
      degree % topology.ranks_per_node != 0) {
    ThrowError(ErrorKind::kConfig,
               "{} ranks_per_node is {} and the expert-parallel degree (ranks "
               "/ replicas) is {}, but a node never spans two groups. Choose a "
               "divisor of the degree, or at least the degree.",
               where, topology.ranks_per_node, degree);
  }
}

}  // namespace isoloss::expert_parallel
