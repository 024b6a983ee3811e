// Measures how fast an indicator grows, as a doubling time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace isoloss::estimators {

/// The rate is in doublings per step. It has the ends of a 95 % interval,
/// which are infinite if there is none.
struct Growth {
  double rate = 0;
  double lower = 0;
  double upper = 0;
  int64_t count = 0;  ///< of points or runs that it is from

  /// Returns whether both ends lie on one side of 0.
  bool IsSettled() const { return lower > 0 || upper < 0; }
};

/// Fits the slope of the least-squares line through (step, doublings), with
/// the t interval of independent residuals. The residuals of one run are not
/// independent, so that its interval is too narrow.
/// Special  Points that are not finite are left out. Empty if fewer than three
///          are left.
std::optional<Growth> FitGrowth(std::span<const int64_t> steps,
                                std::span<const double> doublings);

/// Returns the mean of the rates of several runs with its t interval. Returns
/// nothing for no run.
std::optional<Growth> MeanGrowth(std::span<const double> rates);

}  // namespace isoloss::estimators
