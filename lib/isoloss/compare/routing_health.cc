#include "isoloss/compare/routing_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "isoloss/compare/final_window.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

template <typename T>
std::span<const T> FinalWindowOf(const std::vector<T>& column, double share) {
  return std::span(column).last(WindowLength(column.size(), share));
}

}  // namespace

std::vector<std::string> RoutingWarnings(const std::vector<const Run*>& runs,
                                         double window_share) {
  std::vector<std::string> warnings;
  for (const Run* run : runs) {
    const auto& steps = run->log.steps;
    const auto load =
        FinalWindowOf(steps.expert_load_max_over_mean, window_share);
    const double mean_load = stats::Mean(load);
    if (mean_load >= kCollapsedLoad) {
      warnings.push_back(fmt::format(
          "{}: routing collapsed: the busiest expert gets {:.2f} times the "
          "mean over the last {} steps (warning from {:.1f}). Raise the "
          "expert-bias rate or the warm-up.",
          Label(*run), mean_load, load.size(), kCollapsedLoad));
    }
    const auto dead = FinalWindowOf(steps.dead_experts, window_share);
    const auto fewest = std::min_element(dead.begin(), dead.end());
    if (fewest != dead.end() && *fewest > 0) {
      warnings.push_back(fmt::format(
          "{}: at least {} experts got no token in each of the last {} steps.",
          Label(*run), *fewest, dead.size()));
    }
  }
  return warnings;
}

}  // namespace isoloss::compare
