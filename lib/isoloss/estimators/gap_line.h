// Fits how an arm's relative gap depends on the computation of a training.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "isoloss/estimators/gap_cell.h"

namespace isoloss::estimators {

/// A line needs at least this number of sizes.
inline constexpr size_t kCellsOfALine = 3;

struct GapInterval {
  double estimate = 0;
  double lower = 0;
  double upper = 0;

  bool Holds(double value) const { return lower <= value && value <= upper; }
};

/// A relative gap is in percent of the baseline's loss of the same seed. An
/// estimate is a sum of the cells' mean relative gaps, each times a weight.
struct GapEstimate {
  double value = 0;
  /// The standard error comes from the spread of seeds within each cell.
  double error = 0;
  /// They are Welch's (1947, Biometrika 34, 28-35), and infinite for an error
  /// of 0.
  double degrees_of_freedom = 0;

  /// Returns Student's t interval. Errors   ConfigError unless the confidence
  /// lies in (0, 1).
  GapInterval Interval(double confidence) const;
};

/// Returns the mean relative gap of one cell.
/// Errors   ConfigError for fewer than two seeds, or a gap that is not finite.
GapEstimate MeanGap(const GapCell& cell);

/// Returns the mean over all seeds of all cells. Errors   as MeanGap, for each
/// cell; ConfigError for no cell.
GapEstimate ConstantGap(std::span<const GapCell> cells);

/// Fits a line to the relative gap over log10 of Size::Flops by least squares,
/// with the number of seeds for weight, and returns its value at `flops`.
/// Errors   as MeanGap; ConfigError if all cells take equally many operations.
GapEstimate LineAt(std::span<const GapCell> cells, double flops);

/// Returns the slope of that line, percent a decade. Errors   as LineAt.
GapEstimate LineSlope(std::span<const GapCell> cells);

/// Returns how far the cells' means lie from the line, by the root of the mean
/// square, over what the spread of seeds alone would cause. It is near 1 if the
/// line is the law, and all sizes have equally good rates. Empty for fewer than
/// kCellsOfALine cells, or if no seeds differ. Errors   as LineAt.
std::optional<double> ScatterOfCells(std::span<const GapCell> cells);

/// Returns the gap of `a` minus that of `b`; their runs are independent.
/// Errors   as MeanGap.
GapEstimate GapDifference(const GapCell& a, const GapCell& b);

}  // namespace isoloss::estimators
