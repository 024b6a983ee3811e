// Computes the figures that are logged of one MoE layer's routing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"

namespace isoloss::model {

/// These figures are of the whole batch and the same in every process.
struct RouterFigures {
  /// This is the mean over tokens of the entropy of (a token's scores / their
  /// sum).
  double entropy_nats = 0;
  /// The digest covers all (token, slot, expert).
  uint64_t digest = 0;
  /// Counts (token, slot) pairs of a replayed routing whose expert the router
  /// itself would not have chosen.
  int64_t flips = 0;
};

/// Sums one layer's figures of this process's tokens, which may come in shares.
/// Threads may take the leaves of kernels::kTokenLeaf tokens in any order.
/// Memory is reused.
class RouterSums {
 public:
  /// Forgets the last batch, unless it `goes_on` with these tokens.
  void Begin(size_t tokens, bool goes_on = false);

  size_t leaves() const { return leaves_.size(); }
  /// Adds token `token` since Begin, which is `global_token` of the batch,
  /// to its leaf. Tokens of one leaf come in ascending order.
  void Add(size_t token, size_t global_token, double entropy,
           std::span<const int32_t> expert_ids, int64_t flips);

  /// Sums are over all leaves; entropies go up the aligned tree.
  struct Totals {
    double entropy = 0;
    uint64_t digest = 0;
    int64_t flips = 0;
    int64_t tokens = 0;
  };
  Totals Sum() const;

 private:
  std::vector<Totals> leaves_;
  size_t first_leaf_ = 0;  // since Begin
};

/// Merges the sums of all processes' layers in one collective call. Each
/// process passes equally many layers.
std::vector<RouterFigures> MergeRouterFigures(
    std::span<const RouterSums::Totals> layers, expert_parallel::Mesh& mesh);

}  // namespace isoloss::model
