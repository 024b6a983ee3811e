// How often two runs sent a token to different experts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

struct RoutingDifference {
  std::vector<int64_t> step;  ///< common ones
  int64_t layers = 0;
  /// (token, slot) choices of B that are not among A's of that token, [S, L];
  /// empty unless both logs hold expert_ids of the same extent.
  std::vector<int64_t> flips;
  int64_t choices = 0;  ///< (token, slot) pairs of a step and layer
  /// Of S * L, those with equal routing: by the flips' order of slots if there
  /// are expert_ids, else by digest.
  int64_t equal = 0;
};

/// Empty if the logs hold neither expert_ids nor digests of common steps and
/// equally many layers.
std::optional<RoutingDifference> CompareRouting(const runlog::MoeColumns& a,
                                                const runlog::MoeColumns& b);

}  // namespace isoloss::compare
