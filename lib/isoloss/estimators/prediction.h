// Predicts the gap at a size that nobody trained from a ladder of small runs,
// with an interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/gap_law.h"

namespace isoloss::estimators {

/// A law needs at least this number of sizes.
inline constexpr size_t kCellsOfALaw = 3;

struct PredictionOptions {
  double confidence = 0.9;  ///< of two-sided intervals; in (0, 1)
  size_t resamples = 999;   ///< (resamples + 1) (1 - confidence) / 2 >= 1
  uint64_t seed = 0;
};

/// Estimates are in nats.
struct GapInterval {
  double estimate = 0;
  double lower = 0;
  double upper = 0;
};

/// Returns a cell's mean gap with its interval by Student's t.
GapInterval MeasuredGap(const GapCell& cell, double confidence);

/// A form misfits if its fit_p lies below this.
inline constexpr double kLeastFitP = 0.01;

/// This is the fit of one form to the cells.
struct GapFit {
  Form form = Form::kPowerLaw;
  /// Only kPowerLaw has this law, which is fitted to the means.
  std::optional<PowerLaw> power_law = std::nullopt;
  /// Only kEffectiveSize and kDataPenalty have this law, which is fitted to
  /// the means.
  std::optional<TwoTermLaw> two_terms = std::nullopt;
  /// For kEffectiveSize and kDataPenalty, says whether the baseline's losses
  /// determine alpha and beta. If they do not, the interval is the widest for
  /// exponents from 0.2 to 0.5, between which published ones lie.
  bool exponents_fitted = false;
  /// For kEffectiveSize, these are the factors of parameters and of data that
  /// the arm's losses are worth. They are empty if no factor gives such a gap.
  std::optional<double> parameter_factor = std::nullopt;
  std::optional<double> data_factor = std::nullopt;
  GapInterval predicted = {};
  /// The share of ladders of this very law that lie farther from their fit.
  /// StateSize computes it. It is empty if there are no more cells than
  /// coefficients.
  std::optional<double> fit_p = std::nullopt;

  bool Misfits() const { return fit_p && *fit_p < kLeastFitP; }
};

/// Predicts the gap at `size` from `cells`, by one form. The interval is that
/// of the law: of the mean over endlessly many seeds.
///
/// Bounds   docs/studies.md says how many intervals cover the truth if the
///          form is the true one (prediction_coverage_test). It says nothing
///          of laws that change beyond the largest size.
/// Errors   ConfigError for fewer than 3 cells, or as MeanOfCell; for options
///          out of range.
/// Exact    a function of its arguments.
GapFit PredictGap(std::span<const GapCell> cells, const Size& size, Form form,
                  const PredictionOptions& options);

/// Returns the factor of parameters that the arm's losses are worth, with its
/// interval. It is the factor of the effective size, and each resample has a
/// law of its own.
/// Special  Empty if the baseline's losses determine no law
///          (DeterminesLossLaw). An end is 0 or infinite if a resample's law
///          gives no factor.
/// Errors   as PredictGap.
std::optional<GapInterval> ParameterFactor(std::span<const GapCell> cells,
                                           const PredictionOptions& options);

/// The cell of most operations is predicted from the remaining cells.
/// `interval` is for its measured mean and includes the noise of that mean.
struct HeldOutRung {
  Form form = Form::kPowerLaw;
  std::string cell;
  double measured = 0;
  GapInterval interval = {};
  bool inside = false;
};
/// Returns nothing if fewer than 3 cells would be left.
std::optional<HeldOutRung> PredictTopRung(std::span<const GapCell> cells,
                                          Form form,
                                          const PredictionOptions& options);

/// Returns the nats by which the gap grows when operations grow tenfold, by a
/// weighted line over the logarithm of 6 N D.
/// Errors   as PredictGap, but 2 cells are enough.
GapInterval GapSlope(std::span<const GapCell> cells,
                     const PredictionOptions& options);

enum class ScaleVerdict {
  kSafe,          ///< the upper ends of all forms lie below the margin
  kUnsafe,        ///< the lower ends of all forms that fit lie above it
  kInconclusive,  ///< neither
};
inline constexpr Named<ScaleVerdict> kScaleVerdicts[] = {
    {"safe", ScaleVerdict::kSafe},
    {"unsafe", ScaleVerdict::kUnsafe},
    {"inconclusive", ScaleVerdict::kInconclusive}};

struct SizeStatement {
  std::string name;  ///< "16B at 50B tokens"
  Size size;
  double margin_nats = 0;
  std::vector<GapFit> fits = {};  ///< of kForms
  ScaleVerdict verdict = ScaleVerdict::kInconclusive;
  /// For kInconclusive, this many times the seeds in the same sizes would
  /// bring all upper ends below the margin, if the means stayed as they are.
  /// It is empty if no number up to 2^20 would do so, because a mean lies
  /// above the margin. It is also empty if all upper ends lie below the margin
  /// already.
  std::optional<double> seeds_factor = std::nullopt;
};

/// States whether a size is safe.
/// Errors   as PredictGap; ConfigError unless the margin is above 0.
SizeStatement StateSize(std::span<const GapCell> cells, const std::string& name,
                        const Size& size, double margin_nats,
                        const PredictionOptions& options);

}  // namespace isoloss::estimators
