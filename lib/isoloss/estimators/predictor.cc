#include "isoloss/estimators/predictor.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::estimators {
namespace {

/// These values of alpha and beta are usual. They are tried if nothing
/// determines the exponents.
constexpr double kUsualDecays[] = {0.2, 0.35, 0.5};
constexpr size_t kPairs = std::size(kUsualDecays) * std::size(kUsualDecays);
/// The baseline has no law if more than this share of its resamples has none.
constexpr double kLargestLawlessShare = 0.05;
/// With this number of degrees, Student's t is normal to all printed digits.
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
  std::vector<CellMean> means;
  for (const GapCell& cell : cells) means.push_back(MeanOfCell(cell.baseline));
  return FittedCells(cells, std::move(means));
}

/// Returns the means of resample `i` from 1 on, with `noise` times the noise.
/// Resample 0 has the measured means.
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

/// Solves term (rho^-decay - 1) = added for rho.
std::optional<double> FactorOf(double added, double term, double decay) {
  if (!(term > 0) || !(1 + added / term > 0)) return std::nullopt;
  return std::pow(1 + added / term, -1 / decay);
}

}  // namespace

FittedCells::FittedCells(std::span<const GapCell> of,
                         std::vector<CellMean> of_means)
    : cells(WithLeastErrors(std::move(of_means))) {
  for (size_t i = 0; i < of.size(); ++i) {
    sizes.push_back(of[i].size);
    means.push_back(cells[i].mean);
    errors.push_back(cells[i].error);
  }
}

FittedCells FittedGaps(std::span<const GapCell> cells) {
  std::vector<CellMean> means;
  for (const GapCell& cell : cells) means.push_back(MeanOfCell(cell.gaps));
  return FittedCells(cells, std::move(means));
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
  if (DeterminesLossLaw(losses_.sizes)) FitLosses();
}

void Predictor::FitLosses() {
  // Draws are normal, since alpha and beta are nonlinear in the losses, which
  // widens intervals enough. With t draws, 95 to 98 % of intervals covered the
  // truth.
  std::vector<CellMean> normal = losses_.cells;
  for (CellMean& cell : normal) cell.degrees_of_freedom = kNormalDegrees;
  loss_draws_ =
      DrawMeans(normal, options_.resamples, options_.seed, "ladder/losses");
  loss_fit_.emplace(losses_.sizes, losses_.errors);
  const std::optional<LossLaw> fitted = loss_fit_->Fit(losses_.means);
  if (!fitted) return;
  size_t lawless = 0;
  for (size_t i = 1; i <= options_.resamples; ++i) {
    const auto law = loss_fit_->Fit(Drawn(losses_, loss_draws_, i, 1));
    if (!law) ++lawless;
    laws_.push_back(law.value_or(*fitted));
  }
  if (static_cast<double>(lawless) <=
      kLargestLawlessShare * static_cast<double>(options_.resamples)) {
    baseline_ = fitted;
  }
}

size_t Predictor::Choices() const {
  return form_ == Form::kPowerLaw || baseline_ ? 1 : kPairs;
}

GapFit Predictor::At(const Size& size, double noise) const {
  GapFit fit{.form = form_};
  const Law law = LawOf(gaps_.means, LossOf(Choices() / 2, 0));
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
  fit.predicted = IntervalAt(size, noise);
  return fit;
}

GapInterval Predictor::IntervalAt(const Size& size, double noise,
                                  std::span<const double> added) const {
  ISOLOSS_ASSERT(added.empty() || added.size() == options_.resamples);
  GapInterval widest;
  for (size_t choice = 0; choice < Choices(); ++choice) {
    std::vector<double> values;
    for (size_t i = 1; i <= options_.resamples; ++i) {
      const Law law =
          LawOf(Drawn(gaps_, draws_, i, noise), LossOf(choice, i, noise));
      values.push_back(AtSize(law, size) + (added.empty() ? 0 : added[i - 1]));
    }
    const double estimate = AtSize(LawOf(gaps_.means, LossOf(choice, 0)), size);
    const GapInterval interval =
        IntervalOfDraws(std::move(values), estimate, options_.confidence);
    if (choice == 0) widest = interval;
    if (choice == Choices() / 2) widest.estimate = estimate;
    widest.lower = std::min(widest.lower, interval.lower);
    widest.upper = std::max(widest.upper, interval.upper);
  }
  return widest;
}

std::optional<double> Predictor::FitP() const {
  if (gaps_.means.size() <= CoefficientsOf(form_)) return std::nullopt;
  double most = 0;
  for (size_t choice = 0; choice < Choices(); ++choice) {
    most = std::max(most, FitPOf(choice));
  }
  return most;
}

double Predictor::FitPOf(size_t choice) const {
  const LossLaw loss = LossOf(choice, 0);
  const Law law = LawOf(gaps_.means, loss);
  const double measured = SquaresOf(gaps_.means, loss);
  size_t farther = 0;
  for (size_t i = 1; i <= options_.resamples; ++i) {
    std::vector<double> gaps = Drawn(gaps_, draws_, i, /*noise=*/1);
    for (size_t cell = 0; cell < gaps.size(); ++cell) {
      gaps[cell] += AtSize(law, gaps_.sizes[cell]) - gaps_.means[cell];
    }
    if (SquaresOf(gaps, LossOf(choice, i)) >= measured) ++farther;
  }
  return static_cast<double>(farther + 1) /
         static_cast<double>(options_.resamples + 1);
}

std::optional<GapInterval> Predictor::ParameterFactor() const {
  if (!baseline_) return std::nullopt;
  std::vector<double> values;
  for (size_t i = 1; i <= options_.resamples; ++i) {
    const LossLaw loss = LossOf(0, i);
    const Law law = LawOf(Drawn(gaps_, draws_, i, /*noise=*/1), loss);
    values.push_back(
        FactorOf(law.terms.u, loss.of_parameters, loss.alpha)
            .value_or(i % 2 == 0 ? 0
                                 : std::numeric_limits<double>::infinity()));
  }
  const double u = LawOf(gaps_.means, *baseline_).terms.u;
  return IntervalOfDraws(
      std::move(values),
      FactorOf(u, baseline_->of_parameters, baseline_->alpha)
          .value_or(std::numeric_limits<double>::quiet_NaN()),
      options_.confidence);
}

LossLaw Predictor::LossOf(size_t choice, size_t i, double noise) const {
  if (form_ == Form::kPowerLaw) return {};
  if (!baseline_) {
    constexpr size_t kRow = std::size(kUsualDecays);
    return {.alpha = kUsualDecays[choice / kRow],
            .beta = kUsualDecays[choice % kRow]};
  }
  if (i == 0) return *baseline_;
  if (noise == 1) return laws_[i - 1];
  return loss_fit_->Fit(Drawn(losses_, loss_draws_, i, noise))
      .value_or(*baseline_);
}

Predictor::Law Predictor::LawOf(std::span<const double> gaps,
                                const LossLaw& loss) const {
  if (form_ == Form::kPowerLaw) return {.power = power_->Fit(gaps)};
  return {.terms = FitTwoTerms(form_, gaps_.sizes, gaps_.errors, gaps,
                               loss.alpha, loss.beta)};
}

double Predictor::AtSize(const Law& law, const Size& size) const {
  return form_ == Form::kPowerLaw ? law.power.At(size) : law.terms.At(size);
}

double Predictor::SquaresOf(std::span<const double> gaps,
                            const LossLaw& loss) const {
  const Law law = LawOf(gaps, loss);
  double squares = 0;
  for (size_t cell = 0; cell < gaps.size(); ++cell) {
    const double rest =
        (gaps[cell] - AtSize(law, gaps_.sizes[cell])) / gaps_.errors[cell];
    squares += rest * rest;
  }
  return squares;
}

}  // namespace isoloss::estimators
