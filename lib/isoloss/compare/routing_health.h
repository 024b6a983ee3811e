// Do the routed experts share the work?
#pragma once

#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// From this ratio of the busiest expert's tokens to the mean, a layer counts
/// as collapsed. Healthy small runs were seen at 1.3 to 1.9. A full collapse
/// reaches the number of experts over the top-k, which the log does not hold (4
/// for 16 experts and top-4); where that is below the limit, experts without
/// tokens give it away.
inline constexpr double kCollapsedLoad = 3.0;

/// One sentence for each run whose busiest expert had kCollapsedLoad times the
/// mean or more on average over the final window, or in which experts got no
/// token at every step of it. The loss can hide a collapse; nothing is gated on
/// it. Runs without these columns are silent.
std::vector<std::string> RoutingWarnings(const std::vector<const Run*>& runs,
                                         double window_share);

}  // namespace isoloss::compare
