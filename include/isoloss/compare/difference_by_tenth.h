// Shows how the paired difference of two arms develops along training.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/stats/mean_interval.h"

namespace isoloss::compare {

/// A part of training has this difference, in percent. For each seed it is the
/// mean over the steps of 100 (L_c - L_b) / L_b. `percent` is the mean of these
/// numbers, with its t interval over seeds.
struct PartDifference {
  int64_t first_step = 0;
  int64_t last_step = 0;
  stats::MeanInterval percent;
};

/// The difference changes at the step from which the learning rate falls.
struct DecayDifference {
  PartDifference before;
  PartDifference after;
  stats::MeanInterval change;  ///< after - before of each seed, in percent
};

struct DifferenceByTenth {
  /// Ten parts of training differ by one step at most. If there are fewer than
  /// ten steps, each is a part.
  std::vector<PartDifference> tenths;
  /// per_doubling = slope of 100 (L_c - L_b) / L_b against log2(tokens) by
  /// least squares, in percent per doubling, from the second tenth on. Runs
  /// begin with equal weights, and the first few steps would outweigh all later
  /// ones on that axis. Empty if fewer than three steps are left.
  std::optional<stats::MeanInterval> per_doubling;
  /// Empty if the logs have no learning rates, or rates that never fall.
  std::optional<DecayDifference> decay;
};

/// Returns intervals of level 1 - 2 alpha; infinite for a single pair. Requires
/// runs that level L0 found sound, and at least one pair.
DifferenceByTenth CompareByTenth(const Pairing& pairing, double alpha);

/// Returns the slope of y against x by least squares.
/// Special  NaN for fewer than two different x.
double LeastSquaresSlope(std::span<const double> x, std::span<const double> y);

}  // namespace isoloss::compare
