#include "isoloss/estimators/parameter_factor.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

constexpr int kDecaySteps = 30;  // of 0.02 each
/// The baseline has no law if more than this share of its resamples has none.
constexpr double kLargestLawlessShare = 0.05;
/// With this number of degrees, Student's t is normal to all printed digits.
constexpr double kNormalDegrees = 1e6;

/// Returns the geometric mean. Terms are 1 there, so that numbers stay near 1.
Size CentreOf(std::span<const Size> sizes) {
  double parameters = 0;
  double tokens = 0;
  for (const Size& size : sizes) {
    parameters += std::log(size.parameters);
    tokens += std::log(size.tokens);
  }
  const auto count = static_cast<double>(sizes.size());
  return {std::exp(parameters / count), std::exp(tokens / count)};
}

std::vector<double> WeightsOf(std::span<const double> errors) {
  std::vector<double> weights;
  for (const double error : errors) weights.push_back(1 / (error * error));
  return weights;
}

void RequireErrors(std::span<const Size> sizes,
                   std::span<const double> errors) {
  ISOLOSS_ASSERT(!sizes.empty() && sizes.size() == errors.size());
}

/// Describes a cell's values by their mean and its standard error.
struct CellMean {
  double mean = 0;
  double error = 0;
  double degrees_of_freedom = 0;
};

/// A standard error counts as at least 1e-9 of the largest value. Otherwise
/// runs of equal bits would weigh infinitely much.
CellMean MeanOfCell(std::span<const double> values) {
  const stats::Summary summary = stats::Summarize(values);
  if (summary.count < 2 || !std::isfinite(summary.mean)) {
    ThrowError(ErrorKind::kConfig,
               "parameter factor: a size has {} seeds with mean {}, but each "
               "needs at least 2, all of them finite. Train more seeds.",
               summary.count, summary.mean);
  }
  double largest = 1e-12;
  for (const double value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  const auto count = static_cast<double>(summary.count);
  return {.mean = summary.mean,
          .error = std::max(summary.sd / std::sqrt(count), 1e-9 * largest),
          .degrees_of_freedom = count - 1};
}

/// Fits take cells in this form. A cell whose seeds agree by chance, or to the
/// bit, must not decide alone. Hence no error counts for less than a quarter
/// of the median error. One of 1000 cells of 8 normal values has so small an
/// error.
struct FittedCells {
  std::vector<CellMean> cells;
  std::vector<double> means;
  std::vector<double> errors;

  void Add(std::span<const double> values) {
    cells.push_back(MeanOfCell(values));
    means.push_back(cells.back().mean);
    errors.push_back(cells.back().error);
  }
  void RaiseLeastErrors() {
    std::vector<double> sorted = errors;
    const auto middle = sorted.begin() + static_cast<long>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    for (size_t i = 0; i < cells.size(); ++i) {
      errors[i] = cells[i].error = std::max(errors[i], *middle / 4);
    }
  }
};

/// Draws mean + error * t for each cell, `resamples` times, where t is
/// Student's with the cell's degrees of freedom. This is the parametric
/// bootstrap over seeds. Plain resampling of n values gives intervals too
/// narrow by sqrt((n - 1) / n) and by the difference of t and normal
/// quantiles: a fifth for 8 seeds.
std::vector<std::vector<double>> DrawMeans(const FittedCells& of,
                                           const FactorOptions& options,
                                           const char* stream) {
  const CounterRng rng(options.seed, StreamId(stream));
  std::vector<std::vector<double>> draws(options.resamples);
  uint64_t index = 0;
  for (std::vector<double>& draw : draws) {
    for (const CellMean& cell : of.cells) {
      // Half a step is added, so that neither 0 nor 1 occurs.
      const double uniform = rng.Uniform(index++) + 0x1p-54;
      draw.push_back(cell.mean +
                     cell.error * stats::StudentTQuantile(
                                      uniform, cell.degrees_of_freedom));
    }
  }
  return draws;
}

/// Returns the laws of resamples of the losses, or nothing if too many have
/// none. Draws are normal, since alpha and beta are nonlinear in the losses,
/// which widens intervals enough. With t draws, 95 to 98 % of intervals covered
/// the truth.
std::optional<std::vector<LossLaw>> DrawLaws(FittedCells losses,
                                             const LossLawFit& fit,
                                             const LossLaw& fitted,
                                             const FactorOptions& options) {
  for (CellMean& cell : losses.cells) cell.degrees_of_freedom = kNormalDegrees;
  std::vector<LossLaw> laws;
  size_t lawless = 0;
  for (const auto& draw : DrawMeans(losses, options, "ladder/losses")) {
    const std::optional<LossLaw> law = fit.Fit(draw);
    if (!law) ++lawless;
    laws.push_back(law.value_or(fitted));
  }
  if (static_cast<double>(lawless) >
      kLargestLawlessShare * static_cast<double>(options.resamples)) {
    return std::nullopt;
  }
  return laws;
}

/// Solves A (rho^-alpha - 1) = u for rho.
std::optional<double> FactorOf(double u, const LossLaw& loss) {
  const double quotient = 1 + u / loss.of_parameters;
  if (!(loss.of_parameters > 0) || !(quotient > 0)) return std::nullopt;
  return std::pow(quotient, -1 / loss.alpha);
}

void CheckOptions(const FactorOptions& options) {
  const double rank =
      static_cast<double>(options.resamples + 1) * (1 - options.confidence) / 2;
  if (options.confidence > 0 && options.confidence < 1 && rank >= 1) return;
  ThrowError(ErrorKind::kConfig,
             "parameter factor: confidence {} of {} resamples, but the "
             "confidence must lie in (0, 1) and (resamples + 1) (1 - "
             "confidence) / 2 be at least 1. Draw more resamples.",
             options.confidence, options.resamples);
}

/// Takes the order statistics number (count + 1) (1 -+ confidence) / 2 for the
/// ends.
GapInterval IntervalOfDraws(std::vector<double> values, double estimate,
                            double confidence) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto tail =
      static_cast<size_t>(std::floor((count + 1) * (1 - confidence) / 2));
  return {estimate, values[tail - 1], values[values.size() - tail]};
}

}  // namespace

bool DeterminesLossLaw(std::span<const Size> sizes) {
  std::set<double> parameters;
  std::set<double> tokens;
  for (const Size& size : sizes) {
    parameters.insert(size.parameters);
    tokens.insert(size.tokens);
  }
  return sizes.size() >= 6 && parameters.size() >= 3 && tokens.size() >= 3;
}

LossLawFit::LossLawFit(std::span<const Size> sizes,
                       std::span<const double> errors)
    : weights_(WeightsOf(errors)) {
  RequireErrors(sizes, errors);
  centre_ = CentreOf(sizes);
  const auto cells = static_cast<Eigen::Index>(sizes.size());
  const Eigen::Map<const Eigen::VectorXd> weights(weights_.data(), cells);
  constexpr double kStep = (kLargestDecay - kLeastDecay) / kDecaySteps;
  for (int i = 0; i <= kDecaySteps; ++i) {
    for (int j = 0; j <= kDecaySteps; ++j) {
      Point point{.alpha = kLeastDecay + kStep * i,
                  .beta = kLeastDecay + kStep * j,
                  .terms = {},
                  .solve = {}};
      Eigen::MatrixXd design(cells, 3);
      for (Eigen::Index cell = 0; cell < cells; ++cell) {
        const Size& size = sizes[static_cast<size_t>(cell)];
        design(cell, 0) = 1;
        design(cell, 1) =
            std::pow(size.parameters / centre_.parameters, -point.alpha);
        design(cell, 2) = std::pow(size.tokens / centre_.tokens, -point.beta);
      }
      // (E, A, B) are linear in the losses.
      const Eigen::MatrixXd roots = weights.cwiseSqrt().asDiagonal() * design;
      const Eigen::MatrixXd solve =
          roots.completeOrthogonalDecomposition().pseudoInverse() *
          weights.cwiseSqrt().asDiagonal().toDenseMatrix();
      point.terms.assign(design.col(1).begin(), design.col(1).end());
      point.terms.insert(point.terms.end(), design.col(2).begin(),
                         design.col(2).end());
      for (Eigen::Index row = 0; row < 3; ++row) {
        for (Eigen::Index cell = 0; cell < cells; ++cell) {
          point.solve.push_back(solve(row, cell));
        }
      }
      points_.push_back(std::move(point));
    }
  }
}

std::optional<LossLaw> LossLawFit::Fit(std::span<const double> losses) const {
  const size_t cells = weights_.size();
  ISOLOSS_ASSERT(losses.size() == cells);
  std::optional<LossLaw> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Point& point : points_) {
    double solution[3] = {};
    for (size_t row = 0; row < 3; ++row) {
      for (size_t cell = 0; cell < cells; ++cell) {
        solution[row] += point.solve[row * cells + cell] * losses[cell];
      }
    }
    const auto [floor, of_parameters, of_tokens] = solution;
    if (floor < 0 || of_parameters < 0 || of_tokens < 0) continue;
    double residual = 0;
    for (size_t cell = 0; cell < cells; ++cell) {
      const double rest = losses[cell] - floor -
                          of_parameters * point.terms[cell] -
                          of_tokens * point.terms[cells + cell];
      residual += weights_[cell] * rest * rest;
    }
    if (residual >= least) continue;
    least = residual;
    best =
        LossLaw{.floor = floor,
                .of_parameters =
                    of_parameters * std::pow(centre_.parameters, point.alpha),
                .of_tokens = of_tokens * std::pow(centre_.tokens, point.beta),
                .alpha = point.alpha,
                .beta = point.beta};
  }
  return best;
}

double FitLostParameters(std::span<const Size> sizes,
                         std::span<const double> errors,
                         std::span<const double> gaps, const LossLaw& loss) {
  RequireErrors(sizes, errors);
  const Size centre = CentreOf(sizes);
  const double of_parameters = std::pow(centre.parameters, -loss.alpha);
  const double of_tokens = std::pow(centre.tokens, -loss.beta);
  Eigen::MatrixXd design(static_cast<Eigen::Index>(sizes.size()), 2);
  Eigen::VectorXd values(static_cast<Eigen::Index>(sizes.size()));
  for (size_t cell = 0; cell < sizes.size(); ++cell) {
    const auto row = static_cast<Eigen::Index>(cell);
    const double weight = 1 / errors[cell];
    design(row, 0) =
        weight * std::pow(sizes[cell].parameters, -loss.alpha) / of_parameters;
    design(row, 1) =
        weight * std::pow(sizes[cell].tokens, -loss.beta) / of_tokens;
    values(row) = weight * gaps[cell];
  }
  return design.completeOrthogonalDecomposition().solve(values)(0) /
         of_parameters;
}

std::optional<GapInterval> ParameterFactor(std::span<const GapCell> cells,
                                           const FactorOptions& options) {
  CheckOptions(options);
  std::vector<Size> sizes;
  FittedCells gaps;
  FittedCells losses;
  for (const GapCell& cell : cells) {
    sizes.push_back(cell.size);
    gaps.Add(cell.gaps);
    losses.Add(cell.baseline);
  }
  if (!DeterminesLossLaw(sizes)) return std::nullopt;
  gaps.RaiseLeastErrors();
  losses.RaiseLeastErrors();
  const LossLawFit fit(sizes, losses.errors);
  const std::optional<LossLaw> fitted = fit.Fit(losses.means);
  if (!fitted) return std::nullopt;
  const auto laws = DrawLaws(losses, fit, *fitted, options);
  if (!laws) return std::nullopt;
  const auto factor = [&](std::span<const double> means, const LossLaw& loss) {
    return FactorOf(FitLostParameters(sizes, gaps.errors, means, loss), loss);
  };
  const auto draws = DrawMeans(gaps, options, "ladder/gaps");
  std::vector<double> values;
  for (size_t i = 0; i < draws.size(); ++i) {
    values.push_back(factor(draws[i], (*laws)[i])
                         .value_or(i % 2 == 0
                                       ? std::numeric_limits<double>::infinity()
                                       : 0));
  }
  return IntervalOfDraws(
      std::move(values),
      factor(gaps.means, *fitted)
          .value_or(std::numeric_limits<double>::quiet_NaN()),
      options.confidence);
}

}  // namespace isoloss::estimators
