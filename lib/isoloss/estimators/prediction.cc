#include "isoloss/estimators/prediction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/estimators/predictor.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

/// At most 2^20 times the seeds are tried.
constexpr int kMostDoublings = 20;

void RequireCells(std::span<const GapCell> cells, size_t least) {
  if (cells.size() >= least) return;
  ThrowError(ErrorKind::kConfig,
             "ladder: {} sizes have runs, but a law takes at least {}. Train "
             "more of the ladder.",
             cells.size(), least);
}

}  // namespace

GapInterval MeasuredGap(const GapCell& cell, double confidence) {
  const stats::MeanInterval found =
      stats::IntervalOfMean(stats::Summarize(cell.gaps), (1 - confidence) / 2);
  return {found.mean, found.lower, found.upper};
}

GapFit PredictGap(std::span<const GapCell> cells, const Size& size, Form form,
                  const PredictionOptions& options) {
  RequireCells(cells, kCellsOfALaw);
  return Predictor(cells, form, options).At(size);
}

std::optional<GapInterval> ParameterFactor(std::span<const GapCell> cells,
                                           const PredictionOptions& options) {
  RequireCells(cells, kCellsOfALaw);
  return Predictor(cells, Form::kEffectiveSize, options).ParameterFactor();
}

std::optional<HeldOutRung> PredictTopRung(std::span<const GapCell> cells,
                                          Form form,
                                          const PredictionOptions& options) {
  if (cells.size() < kCellsOfALaw + 1) return std::nullopt;
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
  std::vector<double> noise =
      DrawMeans(std::span(&measured, 1), options.resamples, options.seed,
                "ladder/top_rung");
  for (double& value : noise) value -= measured.mean;
  HeldOutRung result{.form = form, .cell = top->name};
  result.measured = measured.mean;
  result.interval = predictor.IntervalAt(top->size, /*noise=*/1, noise);
  result.inside = result.interval.lower <= measured.mean &&
                  measured.mean <= result.interval.upper;
  return result;
}

GapInterval GapSlope(std::span<const GapCell> cells,
                     const PredictionOptions& options) {
  RequireCells(cells, 2);
  CheckOptions(options);
  const FittedCells gaps = FittedGaps(cells);
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
  return IntervalOfDraws(std::move(slopes), slope(gaps.means),
                         options.confidence);
}

SizeStatement StateSize(std::span<const GapCell> cells, const std::string& name,
                        const Size& size, double margin_nats,
                        const PredictionOptions& options) {
  RequireCells(cells, kCellsOfALaw);
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
  bool fitting = false;
  for (const Form form : kForms) {
    predictors.emplace_back(cells, form, options);
    GapFit fit = predictors.back().At(size);
    fit.fit_p = predictors.back().FitP();
    below = below && fit.predicted.upper < margin_nats;
    if (!fit.Misfits()) above = above && fit.predicted.lower > margin_nats;
    fitting = fitting || (fit.fit_p && !fit.Misfits());
    statement.fits.push_back(fit);
  }
  if (below || (above && fitting)) {
    statement.verdict = below ? ScaleVerdict::kSafe : ScaleVerdict::kUnsafe;
    return statement;
  }
  double factor = 1;
  for (int doubling = 1; doubling <= kMostDoublings; ++doubling) {
    factor *= 2;
    const bool enough = std::all_of(
        predictors.begin(), predictors.end(), [&](const Predictor& predictor) {
          return predictor.IntervalAt(size, 1 / std::sqrt(factor)).upper <
                 margin_nats;
        });
    if (!enough) continue;
    statement.seeds_factor = factor;
    break;
  }
  return statement;
}

}  // namespace isoloss::estimators
