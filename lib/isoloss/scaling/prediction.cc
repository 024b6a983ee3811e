#include "isoloss/scaling/prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/summary.h"

namespace isoloss::scaling {
namespace {

constexpr size_t kLeastCells = 3;
/// Where alpha and beta are drawn from if nothing determines them.
constexpr double kLeastUsualDecay = 0.2;
constexpr double kLargestUsualDecay = 0.5;
/// Of Student's t that is normal to all printed digits.
constexpr double kNormalDegrees = 1e6;
/// Of 2^n times the seeds.
constexpr int kMostDoublings = 20;

void CheckOptions(const PredictionOptions& options) {
  const double rank =
      static_cast<double>(options.resamples + 1) * (1 - options.confidence) / 2;
  if (options.confidence > 0 && options.confidence < 1 && rank >= 1) return;
  ThrowError(ErrorKind::kConfig,
             "ladder: confidence {} of {} resamples, but the confidence must "
             "lie in (0, 1) and (resamples + 1) (1 - confidence) / 2 be at "
             "least 1. Draw more resamples.",
             options.confidence, options.resamples);
}

void RequireCells(std::span<const GapCell> cells, size_t least) {
  if (cells.size() >= least) return;
  ThrowError(ErrorKind::kConfig,
             "ladder: {} sizes have runs, but a law takes at least {}. Train "
             "more of the ladder.",
             cells.size(), least);
}

/// Cells as fits take them.
struct Means {
  std::vector<Size> sizes;
  std::vector<CellMean> cells;
  std::vector<double> means;
  std::vector<double> errors;

  void Add(const Size& size, const CellMean& cell) {
    sizes.push_back(size);
    cells.push_back(cell);
    means.push_back(cell.mean);
    errors.push_back(cell.error);
  }
};

/// A cell whose seeds agree by chance, or to the bit, must not decide alone: no
/// error counts for less than a quarter of the median one. Of 8 normal values
/// one in 1000 has so small an error.
std::vector<CellMean> WithLeastErrors(std::vector<CellMean> cells) {
  std::vector<double> errors;
  for (const CellMean& cell : cells) errors.push_back(cell.error);
  const auto middle = errors.begin() + static_cast<long>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  for (CellMean& cell : cells) cell.error = std::max(cell.error, *middle / 4);
  return cells;
}

Means GapsOf(std::span<const GapCell> cells) {
  std::vector<CellMean> means;
  for (const GapCell& cell : cells) means.push_back(MeanOfCell(cell.gaps));
  means = WithLeastErrors(std::move(means));
  Means result;
  for (size_t i = 0; i < cells.size(); ++i) {
    result.Add(cells[i].size, means[i]);
  }
  return result;
}

Means LossesOf(std::span<const GapCell> cells) {
  Means result;
  for (const GapCell& cell : cells) {
    result.Add(cell.size, MeanOfCell(cell.baseline));
  }
  return result;
}

/// Order statistics number (count + 1) (1 -+ confidence) / 2.
GapInterval IntervalOf(std::vector<double> values, double estimate,
                       double confidence) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto tail =
      static_cast<size_t>(std::floor((count + 1) * (1 - confidence) / 2));
  return {estimate, values[tail - 1], values[values.size() - tail]};
}

/// Predicts a size from draws of cells' means, by one form. Made once, asked
/// for several widths of the noise.
class Predictor {
 public:
  Predictor(std::span<const GapCell> cells, Form form,
            const PredictionOptions& options)
      : form_(form), options_(options), gaps_(GapsOf(cells)) {
    CheckOptions(options);
    draws_ =
        DrawMeans(gaps_.cells, options.resamples, options.seed, "ladder/gaps");
    if (form == Form::kPowerLaw) {
      power_.emplace(gaps_.sizes, gaps_.errors);
    } else {
      PrepareLosses(cells);
    }
  }

  /// `noise`: standard errors count so many times.
  GapFit At(const Size& size, double noise = 1) const {
    GapFit fit = OfMeans();
    const double estimate = form_ == Form::kPowerLaw
                                ? fit.power_law->At(size)
                                : fit.effective_size->At(size);
    fit.predicted =
        IntervalOf(Values(size, noise), estimate, options_.confidence);
    return fit;
  }

  /// kEffectiveSize. A resample without a factor could have any: half of them
  /// count as 0, the others as infinite.
  std::optional<GapInterval> ParameterFactor() const {
    if (!baseline_) return std::nullopt;
    std::vector<double> values;
    for (size_t i = 1; i <= options_.resamples; ++i) {
      const LossLaw law = ExponentsOf(i);
      const EffectiveSize lost = FitEffectiveSize(
          gaps_.sizes, gaps_.errors, Drawn(gaps_, draws_, i, /*noise=*/1),
          law.alpha, law.beta);
      values.push_back(
          FactorOf(lost.u, law.of_parameters, law.alpha)
              .value_or(i % 2 == 0 ? 0
                                   : std::numeric_limits<double>::infinity()));
    }
    const double estimate = OfMeans().parameter_factor.value_or(
        std::numeric_limits<double>::quiet_NaN());
    return IntervalOf(std::move(values), estimate, options_.confidence);
  }

  /// One value for each resample.
  std::vector<double> Values(const Size& size, double noise = 1) const {
    std::vector<double> values;
    for (size_t i = 1; i <= options_.resamples; ++i) {
      const std::vector<double> drawn = Drawn(gaps_, draws_, i, noise);
      if (form_ == Form::kPowerLaw) {
        values.push_back(power_->Fit(drawn).At(size));
        continue;
      }
      const LossLaw law = ExponentsOf(i, noise);
      values.push_back(FitEffectiveSize(gaps_.sizes, gaps_.errors, drawn,
                                        law.alpha, law.beta)
                           .At(size));
    }
    return values;
  }

 private:
  /// Means of resample `i` from 1 on, with so many times the noise; of 0 the
  /// measured ones.
  static std::vector<double> Drawn(const Means& means,
                                   std::span<const double> draws, size_t i,
                                   double noise) {
    std::vector<double> drawn = means.means;
    if (i == 0) return drawn;
    for (size_t cell = 0; cell < drawn.size(); ++cell) {
      drawn[cell] +=
          noise * (draws[(i - 1) * drawn.size() + cell] - means.means[cell]);
    }
    return drawn;
  }

  void PrepareLosses(std::span<const GapCell> cells) {
    losses_ = LossesOf(cells);
    // Normal draws: alpha and beta are nonlinear in the losses, which widens
    // intervals enough. With t draws 95 to 98 % covered the truth.
    for (CellMean& cell : losses_.cells) {
      cell.degrees_of_freedom = kNormalDegrees;
    }
    loss_draws_ = DrawMeans(losses_.cells, options_.resamples, options_.seed,
                            "ladder/losses");
    if (DeterminesLossLaw(losses_.sizes)) {
      loss_fit_.emplace(losses_.sizes, losses_.errors);
      baseline_ = loss_fit_->Fit(losses_.means);
    }
  }

  /// Only alpha and beta count.
  LossLaw ExponentsOf(size_t i, double noise = 1) const {
    if (baseline_) {
      const auto law = loss_fit_->Fit(Drawn(losses_, loss_draws_, i, noise));
      return law.value_or(*baseline_);
    }
    const CounterRng rng(options_.seed, StreamId("ladder/exponents"));
    const auto draw = [&](size_t which) {
      const double uniform = i == 0 ? 0.5 : rng.Uniform(2 * i + which);
      return kLeastUsualDecay +
             (kLargestUsualDecay - kLeastUsualDecay) * uniform;
    };
    return {.alpha = draw(0), .beta = draw(1)};
  }

  GapFit OfMeans() const {
    GapFit fit{.form = form_};
    if (form_ == Form::kPowerLaw) {
      fit.power_law = power_->Fit(gaps_.means);
      return fit;
    }
    const LossLaw law = ExponentsOf(0);
    fit.effective_size = FitEffectiveSize(gaps_.sizes, gaps_.errors,
                                          gaps_.means, law.alpha, law.beta);
    fit.exponents_fitted = baseline_.has_value();
    if (baseline_) {
      fit.parameter_factor = FactorOf(
          fit.effective_size->u, baseline_->of_parameters, baseline_->alpha);
      fit.data_factor = FactorOf(fit.effective_size->v, baseline_->of_tokens,
                                 baseline_->beta);
    }
    return fit;
  }

  /// rho with term (rho^-decay - 1) = added.
  static std::optional<double> FactorOf(double added, double term,
                                        double decay) {
    if (!(term > 0) || !(1 + added / term > 0)) return std::nullopt;
    return std::pow(1 + added / term, -1 / decay);
  }

  Form form_;
  PredictionOptions options_;
  Means gaps_;
  std::vector<double> draws_;
  std::optional<PowerLawFit> power_;
  Means losses_;
  std::vector<double> loss_draws_;
  std::optional<LossLawFit> loss_fit_;
  std::optional<LossLaw> baseline_;  // if its exponents are determined
};

constexpr std::array kForms = {Form::kPowerLaw, Form::kEffectiveSize};

}  // namespace

GapInterval MeasuredGap(const GapCell& cell, double confidence) {
  const stats::MeanInterval found =
      stats::IntervalOfMean(stats::Summarize(cell.gaps), (1 - confidence) / 2);
  return {found.mean, found.lower, found.upper};
}

GapFit PredictGap(std::span<const GapCell> cells, const Size& size, Form form,
                  const PredictionOptions& options) {
  RequireCells(cells, kLeastCells);
  return Predictor(cells, form, options).At(size);
}

std::optional<GapInterval> ParameterFactor(std::span<const GapCell> cells,
                                           const PredictionOptions& options) {
  RequireCells(cells, kLeastCells);
  return Predictor(cells, Form::kEffectiveSize, options).ParameterFactor();
}

std::optional<HeldOutRung> PredictTopRung(std::span<const GapCell> cells,
                                          Form form,
                                          const PredictionOptions& options) {
  if (cells.size() < kLeastCells + 1) return std::nullopt;
  const auto top = std::max_element(cells.begin(), cells.end(),
                                    [](const GapCell& a, const GapCell& b) {
                                      return a.size.Flops() < b.size.Flops();
                                    });
  std::vector<GapCell> others;
  for (auto cell = cells.begin(); cell != cells.end(); ++cell) {
    if (cell != top) others.push_back(*cell);
  }
  const Predictor predictor(others, form, options);
  const CellMean measured = MeanOfCell(top->gaps);
  std::vector<double> values = predictor.Values(top->size);
  const std::vector<double> noise =
      DrawMeans(std::span(&measured, 1), options.resamples, options.seed,
                "ladder/top_rung");
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] += noise[i] - measured.mean;
  }
  HeldOutRung result{.form = form, .cell = top->name};
  result.measured = measured.mean;
  result.interval =
      IntervalOf(std::move(values), predictor.At(top->size).predicted.estimate,
                 options.confidence);
  result.inside = result.interval.lower <= measured.mean &&
                  measured.mean <= result.interval.upper;
  return result;
}

GapInterval GapSlope(std::span<const GapCell> cells,
                     const PredictionOptions& options) {
  RequireCells(cells, 2);
  CheckOptions(options);
  const Means gaps = GapsOf(cells);
  double weights = 0;
  double mean = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const double weight = 1 / (gaps.errors[i] * gaps.errors[i]);
    weights += weight;
    mean += weight * std::log10(gaps.sizes[i].Flops());
  }
  mean /= weights;
  double squares = 0;
  std::vector<double> factors;  // the slope is linear in the means
  for (size_t i = 0; i < cells.size(); ++i) {
    const double weight = 1 / (gaps.errors[i] * gaps.errors[i]);
    const double x = std::log10(gaps.sizes[i].Flops()) - mean;
    squares += weight * x * x;
    factors.push_back(weight * x);
  }
  if (!(squares > 0)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: all {} sizes take equally many operations, but a slope "
               "needs two that differ.",
               cells.size());
  }
  const auto slope = [&](std::span<const double> means) {
    double sum = 0;
    for (size_t i = 0; i < factors.size(); ++i) sum += factors[i] * means[i];
    return sum / squares;
  };
  const std::vector<double> draws =
      DrawMeans(gaps.cells, options.resamples, options.seed, "ladder/gaps");
  std::vector<double> slopes;
  for (size_t i = 0; i < options.resamples; ++i) {
    slopes.push_back(
        slope(std::span(draws).subspan(i * cells.size(), cells.size())));
  }
  return IntervalOf(std::move(slopes), slope(gaps.means), options.confidence);
}

const char* ScaleVerdictName(ScaleVerdict verdict) {
  switch (verdict) {
    case ScaleVerdict::kSafe:
      return "safe";
    case ScaleVerdict::kUnsafe:
      return "unsafe";
    case ScaleVerdict::kInconclusive:
      break;
  }
  return "inconclusive";
}

SizeStatement StateSize(std::span<const GapCell> cells, const std::string& name,
                        const Size& size, double margin_nats,
                        const PredictionOptions& options) {
  RequireCells(cells, kLeastCells);
  if (!(margin_nats > 0)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: the margin is {} nats, but it must be above 0.",
               margin_nats);
  }
  SizeStatement statement{
      .name = name, .size = size, .margin_nats = margin_nats};
  std::vector<Predictor> predictors;
  bool below = true;
  bool above = true;
  for (const Form form : kForms) {
    predictors.emplace_back(cells, form, options);
    statement.fits.push_back(predictors.back().At(size));
    const GapInterval& predicted = statement.fits.back().predicted;
    below = below && predicted.upper < margin_nats;
    above = above && predicted.lower > margin_nats;
  }
  if (below || above) {
    statement.verdict = below ? ScaleVerdict::kSafe : ScaleVerdict::kUnsafe;
    return statement;
  }
  double factor = 1;
  for (int doubling = 1; doubling <= kMostDoublings; ++doubling) {
    factor *= 2;
    const bool enough = std::all_of(
        predictors.begin(), predictors.end(), [&](const Predictor& predictor) {
          return predictor.At(size, 1 / std::sqrt(factor)).predicted.upper <
                 margin_nats;
        });
    if (!enough) continue;
    statement.seeds_factor = factor;
    break;
  }
  return statement;
}

}  // namespace isoloss::scaling
