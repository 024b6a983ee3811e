// One form of a law, fitted to the draws of a ladder's cells.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/gap_law.h"
#include "isoloss/estimators/prediction.h"

namespace isoloss::estimators {

/// Cells as fits take them. A cell whose seeds agree by chance, or to the bit,
/// must not decide alone: no error counts for less than a quarter of the median
/// one. Of 8 normal values one in 1000 has so small an error.
struct FittedCells {
  std::vector<CellMean> cells;
  std::vector<Size> sizes;
  std::vector<double> means;
  std::vector<double> errors;

  FittedCells() = default;
  FittedCells(std::span<const GapCell> of, std::vector<CellMean> of_means);
};

/// Gaps of the cells.
FittedCells FittedGaps(std::span<const GapCell> cells);

/// Order statistics number (count + 1) (1 -+ confidence) / 2.
GapInterval IntervalOfDraws(std::vector<double> values, double estimate,
                            double confidence);

/// Errors   ConfigError for options out of range.
void CheckOptions(const PredictionOptions& options);

/// The loss of the baseline that its cells determine (DeterminesLossLaw), if
/// any.
std::optional<LossLaw> BaselineLaw(std::span<const GapCell> cells);

/// Predicts sizes from draws of the cells' means, by one form. Made once, asked
/// for several sizes and widths of the noise. Where nothing determines alpha
/// and beta, the choice that says most in each direction counts: of 0.2, 0.35
/// and 0.5 for each, between which published fits lie.
/// Exact: a function of its arguments.
class Predictor {
 public:
  /// Errors   as MeanOfCell and CheckOptions.
  Predictor(std::span<const GapCell> cells, Form form,
            const PredictionOptions& options);

  /// `noise`: standard errors count so many times.
  GapFit At(const Size& size, double noise = 1) const;

  /// The interval alone. `added` has a value for each resample, or none.
  GapInterval IntervalAt(const Size& size, double noise = 1,
                         std::span<const double> added = {}) const;

  /// Share of ladders whose true law is the fitted one that lie farther from
  /// their fit, by the weighted sum of squares. Empty if there are no more
  /// cells than coefficients.
  std::optional<double> FitP() const;

  /// kEffectiveSize: the factor of parameters of each resample. A resample
  /// without a factor could have any: half of them count as 0, the others as
  /// infinite. Empty if the baseline's losses determine no law.
  std::optional<GapInterval> ParameterFactor() const;

 private:
  /// A fitted law of any form.
  struct Law {
    PowerLaw power = {};
    TwoTermLaw terms = {};
  };
  size_t Choices() const;
  void FitLosses();
  /// The baseline's law of resample `i` from 1 on; 0: the measured losses. Only
  /// alpha and beta count.
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
