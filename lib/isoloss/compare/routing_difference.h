// Counts how often two runs sent a token to different experts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

struct RoutingDifference {
  std::vector<int64_t> step;  ///< steps that both logs have
  int64_t layers = 0;
  /// Number of (token, slot) choices of B that A did not make for that token,
  /// [S, L]; empty unless both logs have expert_ids of the same extent.
  std::vector<int64_t> flips;
  int64_t choices = 0;  ///< (token, slot) pairs of a step and layer
  /// Number of the S * L steps and layers with equal routing. If there are
  /// expert_ids, the order of slots must be equal, too; else the digest must.
  int64_t equal = 0;
};

/// Empty if the logs have neither expert_ids nor digests at common steps of
/// equally many layers.
std::optional<RoutingDifference> CompareRouting(const runlog::MoeColumns& a,
                                                const runlog::MoeColumns& b);

}  // namespace isoloss::compare
