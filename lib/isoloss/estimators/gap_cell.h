// Computes an arm's gap from the runs of one model size and one number of
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// A size is a model's parameters and the tokens that train it.
struct Size {
  double parameters = 0;
  double tokens = 0;

  /// Approximates the floating-point operations of a training by 6 N D.
  double Flops() const { return 6 * parameters * tokens; }
};

/// A cell is one size of a ladder. The seed is the unit: each seed gives one
/// gap, and runs of different sizes are independent.
struct GapCell {
  std::string name;  ///< for people, "0.34M-4"
  Size size;
  /// A gap is the arm's loss minus the baseline's loss, nats. There is one for
  /// each seed.
  std::vector<double> gaps;
  /// The baseline's losses, nats, belong to the same seeds.
  std::vector<double> baseline;
};

/// Describes a cell's values by their mean and its standard error.
struct CellMean {
  double mean = 0;
  double error = 0;
  double degrees_of_freedom = 0;
};

/// A standard error counts as at least 1e-9 of the largest value. Otherwise
/// runs of equal bits would weigh infinitely much.
/// Errors   ConfigError for fewer than two values, or one that is not finite.
CellMean MeanOfCell(std::span<const double> values);

/// Draws mean + error * t for each cell, `resamples` times, where t is
/// Student's with the cell's degrees of freedom. This is the parametric
/// bootstrap over seeds. Plain resampling of n values gives intervals too
/// narrow by sqrt((n - 1) / n) and by the difference of t and normal
/// quantiles: a fifth for 8 seeds.
/// Shapes   result[resample * means.size() + cell].
/// Exact    a function of its arguments.
std::vector<double> DrawMeans(std::span<const CellMean> means, size_t resamples,
                              uint64_t seed, const char* stream);

}  // namespace isoloss::estimators
