// Finds the learning rate of the least loss among rates that were tried.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace isoloss::stats {

/// Describes where a sweep of learning rates has its least loss.
struct RateOptimum {
  size_t best = 0;  ///< place of the tried rate of the least loss
  /// The parabola in log rate through that rate and its neighbours is lowest
  /// at this rate. It is the rate tried itself if a neighbour is missing or
  /// diverged.
  double rate = 0;
  /// Rates on both sides of the best were tried, so the optimum lies between
  /// them.
  bool bracketed = false;
};

/// Returns the optimum of the sweep. `rates` ascend from above 0, and
/// `losses` has the loss of each.
/// Special  a loss that is not finite is of a rate at which training diverged;
///          empty if no loss is finite. Of equal losses the lower rate wins.
std::optional<RateOptimum> FindRateOptimum(std::span<const double> rates,
                                           std::span<const double> losses);

/// Returns the loss at `rate`, on the straight line in log rate between its
/// neighbours among the tried rates.
/// Special  empty outside of the tried rates, or beside one that diverged.
std::optional<double> LossAtRate(std::span<const double> rates,
                                 std::span<const double> losses, double rate);

}  // namespace isoloss::stats
