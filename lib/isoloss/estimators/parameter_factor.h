// Finds the factor of parameters that an arm's losses are worth: it learns as a
// model of fewer parameters from less data would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/gap_line.h"

namespace isoloss::estimators {

/// The loss of the baseline is E + A N^-alpha + B D^-beta.
struct LossLaw {
  double floor = 0;
  double of_parameters = 0;  ///< A at N = 1
  double of_tokens = 0;      ///< B at D = 1
  double alpha = 0;
  double beta = 0;
};

/// These bound alpha and beta. Published fits lie between 0.2 and 0.5
/// (Hoffmann et al. 2022: 0.34 and 0.28; Kumar et al., arXiv 2411.04330: about
/// 0.5).
inline constexpr double kLeastDecay = 0.1;
inline constexpr double kLargestDecay = 0.7;

/// Fits alpha and beta (a grid of 0.02) and E, A, B >= 0 by least squares, each
/// cell weighted by 1 / error^2.
/// Shapes   sizes, errors and losses have one value for each cell, at least 1.
class LossLawFit {
 public:
  LossLawFit(std::span<const Size> sizes, std::span<const double> errors);

  /// Returns nothing if no exponents give E, A, B >= 0.
  std::optional<LossLaw> Fit(std::span<const double> losses) const;

 private:
  /// A point of the grid is one pair of exponents.
  struct Point {
    double alpha;
    double beta;
    std::vector<double> terms;  ///< [2, cells], 1 at the centre
    std::vector<double> solve;  ///< [3, cells]: (E, A, B) of the losses
  };

  Size centre_;
  std::vector<double> weights_;
  std::vector<Point> points_;
};
/// Returns whether `sizes` determine the five numbers of a LossLaw: at least 6
/// cells with 3 sizes of each kind.
bool DeterminesLossLaw(std::span<const Size> sizes);

/// Fits u and v of gap = u N^-alpha + v D^-beta by least squares for given
/// exponents (arXiv 2411.04330, 2505.14669), and returns u. If several
/// solutions are equally good, it takes the smallest.
/// Shapes   as LossLawFit.
double FitLostParameters(std::span<const Size> sizes,
                         std::span<const double> errors,
                         std::span<const double> gaps, const LossLaw& loss);

struct FactorOptions {
  double confidence = 0.9;  ///< of the two-sided interval; in (0, 1)
  size_t resamples = 999;   ///< (resamples + 1) (1 - confidence) / 2 >= 1
  uint64_t seed = 0;
};

/// Returns the factor of parameters with the interval of its resamples, each of
/// which has a law of its own. A resample without a factor could have any: half
/// of these count as 0, and half as infinite.
/// Special  Empty if the baseline's losses determine no law
///          (DeterminesLossLaw). The estimate may be NaN.
/// Errors   ConfigError for options out of range, for a cell of fewer than two
///          seeds, or for a value that is not finite.
/// Bounds   parameter_factor_coverage_test: 90 % intervals hold the truth in
///          0.86 to 0.94 of ladders of this law.
/// Exact    a function of its arguments.
std::optional<GapInterval> ParameterFactor(std::span<const GapCell> cells,
                                           const FactorOptions& options);

}  // namespace isoloss::estimators
