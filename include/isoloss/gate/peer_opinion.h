// Applies other projects' rules to the judged runs, for readers who know these
// rules.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::gate {

/// Says how one rule (compare/peer_rules.h) judges the runs. It decides
/// nothing here.
struct PeerOpinion {
  std::string_view name;  ///< "megatron_approximate"
  std::string_view rule;
  std::string_view source;
  int64_t accepted = 0;  ///< of `judged`
  int64_t judged = 0;    ///< pairs; 1 of a rule on all runs at once
};

/// Applies each rule to all pairs. MLPerf's rule needs three baseline runs and
/// judges all runs at once. Its target is the loss at which the slowest
/// baseline run ends.
std::vector<PeerOpinion> PeerOpinions(const compare::Pairing& pairing);

}  // namespace isoloss::gate
