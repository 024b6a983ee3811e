// The runs of one model size and one number of tokens tell an arm's gap there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// A model's size, and the tokens that it is trained with.
struct Size {
  double parameters = 0;
  double tokens = 0;

  /// Floating-point operations of a training, about: 6 N D.
  double Flops() const { return 6 * parameters * tokens; }
};

/// One size of a ladder. Seeds are the unit: each gives one gap, and runs of
/// different sizes are independent.
struct GapCell {
  std::string name;  ///< for people, "0.34M-4"
  Size size;
  /// Loss of the arm minus that of the baseline, nats, one for each seed.
  std::vector<double> gaps;
  /// Loss of the baseline, nats, of the same seeds.
  std::vector<double> baseline;
};

/// Mean of a cell's values and its standard error.
struct CellMean {
  double mean = 0;
  double error = 0;
  double degrees_of_freedom = 0;
};

/// A standard error is never taken for less than 1e-9 of the largest value:
/// runs of equal bits would weigh infinitely much. Errors   ConfigError for
/// fewer than two values, or one that is not finite.
CellMean MeanOfCell(std::span<const double> values);

/// `resamples` times one draw for each cell: mean + error * t, t Student's with
/// the cell's degrees of freedom. This is the bootstrap over seeds in its
/// parametric form: plain resampling of n values is too narrow by
/// sqrt((n - 1) / n) and by the difference of t and normal quantiles, a fifth
/// for 8 seeds.
/// Shapes   result[resample * means.size() + cell].
/// Exact    a function of its arguments.
std::vector<double> DrawMeans(std::span<const CellMean> means, size_t resamples,
                              uint64_t seed, const char* stream);

}  // namespace isoloss::estimators
