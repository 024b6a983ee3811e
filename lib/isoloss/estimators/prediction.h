// A ladder of small runs predicts a size that nobody trained, with an interval.
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

/// Sizes that a law takes at least.
inline constexpr size_t kCellsOfALaw = 3;

struct PredictionOptions {
  double confidence = 0.9;  ///< of two-sided intervals; in (0, 1)
  size_t resamples = 999;   ///< (resamples + 1) (1 - confidence) / 2 >= 1
  uint64_t seed = 0;
};

/// An estimate with its interval. Nats.
struct GapInterval {
  double estimate = 0;
  double lower = 0;
  double upper = 0;
};

/// A cell's mean gap with its interval, by Student's t.
GapInterval MeasuredGap(const GapCell& cell, double confidence);

/// A form of which fewer ladders lie so far from their fit is not the law.
inline constexpr double kLeastFitP = 0.01;

/// The fit of one form to the cells.
struct GapFit {
  Form form = Form::kPowerLaw;
  /// kPowerLaw, of the means.
  std::optional<PowerLaw> power_law = std::nullopt;
  /// kEffectiveSize and kDataPenalty, of the means.
  std::optional<TwoTermLaw> two_terms = std::nullopt;
  /// kEffectiveSize and kDataPenalty: the baseline's losses determine alpha and
  /// beta; else the interval is the widest of those from 0.2 to 0.5, where
  /// published ones lie.
  bool exponents_fitted = false;
  /// kEffectiveSize: factors of parameters and of data that the arm's losses
  /// are worth; empty where no factor gives such a gap.
  std::optional<double> parameter_factor = std::nullopt;
  std::optional<double> data_factor = std::nullopt;
  GapInterval predicted = {};
  /// The share of ladders of this very law that lie farther from their fit, by
  /// StateSize. Empty where there are no more cells than coefficients.
  std::optional<double> fit_p = std::nullopt;

  bool Misfits() const { return fit_p && *fit_p < kLeastFitP; }
};

/// The gap that `cells` make expect at `size`, by one form. The interval is
/// that of the law: of the mean over endlessly many seeds.
///
/// Bounds   docs/studies.md says how many intervals cover the truth where the
///          form is the true one (prediction_coverage_test). It says nothing of
///          laws that change beyond the largest size.
/// Errors   ConfigError for fewer than 3 cells, or as MeanOfCell; for options
///          out of range.
/// Exact    a function of its arguments.
GapFit PredictGap(std::span<const GapCell> cells, const Size& size, Form form,
                  const PredictionOptions& options);

/// The factor of parameters that the arm's losses are worth, with its interval:
/// that of the effective size, each resample with a law of its own. Empty if
/// the baseline's losses determine no law (DeterminesLossLaw). An end is 0 or
/// infinite where a resample's law gives no factor. Errors   as PredictGap.
std::optional<GapInterval> ParameterFactor(std::span<const GapCell> cells,
                                           const PredictionOptions& options);

/// The cell of most operations, predicted from the others. `interval` is of its
/// measured mean: its own noise is in it.
struct HeldOutRung {
  Form form = Form::kPowerLaw;
  std::string cell;
  double measured = 0;
  GapInterval interval = {};
  bool inside = false;
};
/// Empty if fewer than 3 cells would be left.
std::optional<HeldOutRung> PredictTopRung(std::span<const GapCell> cells,
                                          Form form,
                                          const PredictionOptions& options);

/// Nats by which the gap grows when operations grow tenfold: weighted line over
/// the logarithm of 6 N D. Errors   as PredictGap, but 2 cells are enough.
GapInterval GapSlope(std::span<const GapCell> cells,
                     const PredictionOptions& options);

/// The verdict on a size.
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
  /// kInconclusive: this many times the seeds, in the same sizes, would bring
  /// all upper ends below the margin if the means stayed as they are. Empty if
  /// no number up to 2^20 would: a mean itself lies above it. Empty, too, if
  /// they lie below it already.
  std::optional<double> seeds_factor = std::nullopt;
};

/// Errors   as PredictGap; ConfigError unless the margin is above 0.
SizeStatement StateSize(std::span<const GapCell> cells, const std::string& name,
                        const Size& size, double margin_nats,
                        const PredictionOptions& options);

}  // namespace isoloss::estimators
