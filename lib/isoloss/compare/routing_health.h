// Warns if the routed experts do not share the work.
#pragma once

#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// If the busiest expert has this many times the mean of tokens, a layer counts
/// as collapsed. Healthy small runs have 1.3 to 1.9. A full collapse reaches
/// the number of experts over the top-k, which the log does not hold (4 for 16
/// experts and top-4). If that is below the limit, experts without tokens show
/// a collapse.
inline constexpr double kCollapsedLoad = 3.0;

/// Writes a sentence for each run whose busiest expert had kCollapsedLoad times
/// the mean or more on average over the final window. A run in which experts
/// got no token at every step of the window also gets one. The loss can hide a
/// collapse; no gate depends on it. Runs without these columns get no warning.
std::vector<std::string> RoutingWarnings(const std::vector<const Run*>& runs,
                                         double window_share);

}  // namespace isoloss::compare
