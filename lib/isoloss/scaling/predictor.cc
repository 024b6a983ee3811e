#include "isoloss/scaling/predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"

namespace isoloss::scaling {
namespace {

/// Where alpha and beta are drawn from if nothing determines them.
constexpr double kLeastUsualDecay = 0.2;
constexpr double kLargestUsualDecay = 0.5;
/// Of Student's t that is normal to all printed digits.
constexpr double kNormalDegrees = 1e6;

std::vector<CellMean> WithLeastErrors(std::vector<CellMean> cells) {
  std::vector<double> errors;
  for (const CellMean& cell : cells) errors.push_back(cell.error);
  const auto middle = errors.begin() + static_cast<long>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  for (CellMean& cell : cells) cell.error = std::max(cell.error, *middle / 4);
  return cells;
}

FittedCells FittedLosses(std::span<const GapCell> cells) {
  FittedCells result;
  for (const GapCell& cell : cells) {
    result.Add(cell.size, MeanOfCell(cell.baseline));
  }
  return result;
}

/// Means of resample `i` from 1 on, with so many times the noise; of 0 the
/// measured ones.
std::vector<double> Drawn(const FittedCells& cells,
                          std::span<const double> draws, size_t i,
                          double noise) {
  std::vector<double> drawn = cells.means;
  if (i == 0) return drawn;
  for (size_t cell = 0; cell < drawn.size(); ++cell) {
    drawn[cell] +=
        noise * (draws[(i - 1) * drawn.size() + cell] - cells.means[cell]);
  }
  return drawn;
}

/// rho with term (rho^-decay - 1) = added.
std::optional<double> FactorOf(double added, double term, double decay) {
  if (!(term > 0) || !(1 + added / term > 0)) return std::nullopt;
  return std::pow(1 + added / term, -1 / decay);
}

}  // namespace

void FittedCells::Add(const Size& size, const CellMean& cell) {
  sizes.push_back(size);
  cells.push_back(cell);
  means.push_back(cell.mean);
  errors.push_back(cell.error);
}

FittedCells FittedGaps(std::span<const GapCell> cells) {
  std::vector<CellMean> means;
  for (const GapCell& cell : cells) means.push_back(MeanOfCell(cell.gaps));
  means = WithLeastErrors(std::move(means));
  FittedCells result;
  for (size_t i = 0; i < cells.size(); ++i) {
    result.Add(cells[i].size, means[i]);
  }
  return result;
}

GapInterval IntervalOfDraws(std::vector<double> values, double estimate,
                            double confidence) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto tail =
      static_cast<size_t>(std::floor((count + 1) * (1 - confidence) / 2));
  return {estimate, values[tail - 1], values[values.size() - tail]};
}

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

std::optional<LossLaw> BaselineLaw(std::span<const GapCell> cells) {
  const FittedCells losses = FittedLosses(cells);
  if (!DeterminesLossLaw(losses.sizes)) return std::nullopt;
  return LossLawFit(losses.sizes, losses.errors).Fit(losses.means);
}

Predictor::Predictor(std::span<const GapCell> cells, Form form,
                     const PredictionOptions& options)
    : form_(form), options_(options), gaps_(FittedGaps(cells)) {
  CheckOptions(options);
  draws_ =
      DrawMeans(gaps_.cells, options.resamples, options.seed, "ladder/gaps");
  if (form == Form::kPowerLaw) {
    power_.emplace(gaps_.sizes, gaps_.errors);
    return;
  }
  losses_ = FittedLosses(cells);
  // Normal draws: alpha and beta are nonlinear in the losses, which widens
  // intervals enough. With t draws 95 to 98 % covered the truth.
  std::vector<CellMean> normal = losses_.cells;
  for (CellMean& cell : normal) cell.degrees_of_freedom = kNormalDegrees;
  loss_draws_ =
      DrawMeans(normal, options_.resamples, options_.seed, "ladder/losses");
  if (DeterminesLossLaw(losses_.sizes)) {
    loss_fit_.emplace(losses_.sizes, losses_.errors);
    baseline_ = loss_fit_->Fit(losses_.means);
  }
}

GapFit Predictor::At(const Size& size, double noise) const {
  const Law law = LawOf(gaps_.means, 0, noise);
  GapFit fit{.form = form_};
  if (form_ == Form::kPowerLaw) {
    fit.power_law = law.power;
  } else {
    fit.two_terms = law.terms;
    fit.exponents_fitted = baseline_.has_value();
  }
  if (form_ == Form::kEffectiveSize && baseline_) {
    fit.parameter_factor =
        FactorOf(law.terms.u, baseline_->of_parameters, baseline_->alpha);
    fit.data_factor =
        FactorOf(law.terms.v, baseline_->of_tokens, baseline_->beta);
  }
  fit.predicted = IntervalOfDraws(Values(size, noise), AtSize(law, size),
                                  options_.confidence);
  return fit;
}

std::vector<double> Predictor::Values(const Size& size, double noise) const {
  std::vector<double> values;
  for (size_t i = 1; i <= options_.resamples; ++i) {
    values.push_back(
        AtSize(LawOf(Drawn(gaps_, draws_, i, noise), i, noise), size));
  }
  return values;
}

double Predictor::FitP() const {
  const size_t cells = gaps_.means.size();
  if (cells <= CoefficientsOf(form_)) return 1;
  const Law law = LawOf(gaps_.means, 0, /*noise=*/1);
  const double measured = SquaresOf(gaps_.means, 0);
  size_t farther = 0;
  for (size_t i = 1; i <= options_.resamples; ++i) {
    std::vector<double> gaps = Drawn(gaps_, draws_, i, /*noise=*/1);
    for (size_t cell = 0; cell < cells; ++cell) {
      gaps[cell] += AtSize(law, gaps_.sizes[cell]) - gaps_.means[cell];
    }
    if (SquaresOf(gaps, i) >= measured) ++farther;
  }
  return static_cast<double>(farther + 1) /
         static_cast<double>(options_.resamples + 1);
}

std::optional<GapInterval> Predictor::ParameterFactor() const {
  if (!baseline_) return std::nullopt;
  std::vector<double> values;
  for (size_t i = 1; i <= options_.resamples; ++i) {
    const LossLaw loss = ExponentsOf(i, /*noise=*/1);
    const Law law = LawOf(Drawn(gaps_, draws_, i, /*noise=*/1), i, /*noise=*/1);
    values.push_back(
        FactorOf(law.terms.u, loss.of_parameters, loss.alpha)
            .value_or(i % 2 == 0 ? 0
                                 : std::numeric_limits<double>::infinity()));
  }
  const double u = LawOf(gaps_.means, 0, /*noise=*/1).terms.u;
  return IntervalOfDraws(
      std::move(values),
      FactorOf(u, baseline_->of_parameters, baseline_->alpha)
          .value_or(std::numeric_limits<double>::quiet_NaN()),
      options_.confidence);
}

Predictor::Law Predictor::LawOf(std::span<const double> gaps, size_t i,
                                double noise) const {
  if (form_ == Form::kPowerLaw) return {.power = power_->Fit(gaps)};
  const LossLaw loss = ExponentsOf(i, noise);
  return {.terms = FitTwoTerms(form_, gaps_.sizes, gaps_.errors, gaps,
                               loss.alpha, loss.beta)};
}

double Predictor::AtSize(const Law& law, const Size& size) const {
  return form_ == Form::kPowerLaw ? law.power.At(size) : law.terms.At(size);
}

double Predictor::SquaresOf(std::span<const double> gaps, size_t i) const {
  const Law law = LawOf(gaps, i, /*noise=*/1);
  double squares = 0;
  for (size_t cell = 0; cell < gaps.size(); ++cell) {
    const double rest =
        (gaps[cell] - AtSize(law, gaps_.sizes[cell])) / gaps_.errors[cell];
    squares += rest * rest;
  }
  return squares;
}

LossLaw Predictor::ExponentsOf(size_t i, double noise) const {
  if (baseline_) {
    const auto law = loss_fit_->Fit(Drawn(losses_, loss_draws_, i, noise));
    return law.value_or(*baseline_);
  }
  const CounterRng rng(options_.seed, StreamId("ladder/exponents"));
  const auto draw = [&](size_t which) {
    const double uniform = i == 0 ? 0.5 : rng.Uniform(2 * i + which);
    return kLeastUsualDecay + (kLargestUsualDecay - kLeastUsualDecay) * uniform;
  };
  return {.alpha = draw(0), .beta = draw(1)};
}

}  // namespace isoloss::scaling
