// Fits one form of a law to the draws of a ladder's cells.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/gap_law.h"
#include "isoloss/estimators/prediction.h"

namespace isoloss::estimators {

/// Fits take cells in this form. A cell whose seeds agree by chance, or to the
/// bit, must not decide alone. Hence no error counts for less than a quarter
/// of the median error. One of 1000 cells of 8 normal values has so small an
/// error.
struct FittedCells {
  std::vector<CellMean> cells;
  std::vector<Size> sizes;
  std::vector<double> means;
  std::vector<double> errors;

  FittedCells() = default;
  FittedCells(std::span<const GapCell> of, std::vector<CellMean> of_means);
};

/// Returns the gaps of the cells.
FittedCells FittedGaps(std::span<const GapCell> cells);

/// Takes the order statistics number (count + 1) (1 -+ confidence) / 2 for the
/// ends.
GapInterval IntervalOfDraws(std::vector<double> values, double estimate,
                            double confidence);

/// Errors   ConfigError if an option is out of range.
void CheckOptions(const PredictionOptions& options);

/// Returns the law of the baseline's loss, if its cells determine one
/// (DeterminesLossLaw).
std::optional<LossLaw> BaselineLaw(std::span<const GapCell> cells);

/// Predicts sizes from draws of the cells' means, by one form. One object can
/// predict several sizes and widths of the noise. If nothing determines alpha
/// and beta, each is tried as 0.2, 0.35 and 0.5, between which published fits
/// lie. The most extreme result in each direction counts.
/// Exact    a function of its arguments.
class Predictor {
 public:
  /// Fits the draws of all cells.
  /// Errors   as MeanOfCell and CheckOptions.
  Predictor(std::span<const GapCell> cells, Form form,
            const PredictionOptions& options);

  /// Predicts a size. `noise` multiplies the standard errors.
  GapFit At(const Size& size, double noise = 1) const;

  /// Returns the interval alone. `added` has a value for each resample, or
  /// none.
  GapInterval IntervalAt(const Size& size, double noise = 1,
                         std::span<const double> added = {}) const;

  /// Returns the share of ladders of the fitted law that lie farther from
  /// their own fit, by the weighted sum of squares. Returns nothing if there
  /// are no more cells than coefficients.
  std::optional<double> FitP() const;

  /// For kEffectiveSize, returns the factor of parameters with the interval of
  /// its resamples. A resample without a factor could have any: half of these
  /// count as 0, and half as infinite. Returns nothing if the baseline's
  /// losses determine no law.
  std::optional<GapInterval> ParameterFactor() const;

 private:
  /// Only the member of the fitted form is used.
  struct Law {
    PowerLaw power = {};
    TwoTermLaw terms = {};
  };
  size_t Choices() const;
  void FitLosses();
  /// Returns the baseline's law of resample `i` from 1 on, or of the measured
  /// losses for 0. Only alpha and beta count.
  LossLaw LossOf(size_t choice, size_t i, double noise = 1) const;
  Law LawOf(std::span<const double> gaps, const LossLaw& loss) const;
  double AtSize(const Law& law, const Size& size) const;
  double SquaresOf(std::span<const double> gaps, const LossLaw& loss) const;
  double FitPOf(size_t choice) const;

  Form form_;
  PredictionOptions options_;
  FittedCells gaps_;
  std::vector<double> draws_;
  std::optional<PowerLawFit> power_;
  FittedCells losses_;
  std::vector<double> loss_draws_;
  std::optional<LossLawFit> loss_fit_;
  std::optional<LossLaw> baseline_;  // if its exponents are determined
  std::vector<LossLaw> laws_;        // of each resample, then
};

}  // namespace isoloss::estimators
