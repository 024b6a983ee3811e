// How fast an indicator grows, as a doubling time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace isoloss::estimators {

/// Doublings per step, with the ends of a 95 % interval (infinite if there is
/// none).
struct Growth {
  double rate = 0;
  double lower = 0;
  double upper = 0;
  int64_t count = 0;  ///< of points or runs that it is from

  /// Neither end lies on the other side of 0.
  bool IsSettled() const { return lower > 0 || upper < 0; }
};

/// Slope of the least-squares line through (step, doublings), with the t
/// interval of independent residuals. Those of one run are not independent, so
/// that the interval is too narrow for it. Points that are not finite are left
/// out. Empty if fewer than three are left.
std::optional<Growth> FitGrowth(std::span<const int64_t> steps,
                                std::span<const double> doublings);

/// Mean of the rates of several runs with the t interval of that mean. Empty
/// for no run.
std::optional<Growth> MeanGrowth(std::span<const double> rates);

}  // namespace isoloss::estimators
