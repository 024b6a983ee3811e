// What is logged of one MoE layer's routing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/expert_parallel/mesh.h"

namespace isoloss::model {

/// Of the whole batch; the same in every process.
struct RouterFigures {
  /// Mean over tokens of the entropy of a token's scores over their sum.
  double entropy_nats = 0;
  /// Of all (token, slot, expert).
  uint64_t digest = 0;
  /// (token, slot) pairs of a replayed routing whose expert the router itself
  /// would not have chosen.
  int64_t flips = 0;
};

/// One layer's figures of this process's tokens: leaves of kernels::kTokenLeaf
/// tokens, which threads may take in any order. Memory is reused.
class RouterSums {
 public:
  /// Forgets the last batch.
  void Begin(size_t tokens);

  size_t leaves() const { return leaves_.size(); }
  /// Adds token `token` of this process, which is `global_token` of the batch,
  /// to its leaf: tokens of one leaf ascend.
  void Add(size_t token, size_t global_token, double entropy,
           std::span<const int32_t> expert_ids, int64_t flips);

  /// Sums over all leaves: entropies go up the aligned tree.
  struct Totals {
    double entropy = 0;
    uint64_t digest = 0;
    int64_t flips = 0;
    int64_t tokens = 0;
  };
  Totals Sum() const;

 private:
  std::vector<Totals> leaves_;
};

/// Brings the sums of all processes' layers together, in one collective call;
/// each process passes equally many.
std::vector<RouterFigures> MergeRouterFigures(
    std::span<const RouterSums::Totals> layers, expert_parallel::Mesh& mesh);

}  // namespace isoloss::model
