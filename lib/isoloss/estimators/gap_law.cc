#include "isoloss/estimators/gap_law.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::estimators {
namespace {

constexpr int kPowerSteps = 40;  // of 0.05 each
constexpr int kHalvings = 6;
constexpr int kDecaySteps = 30;  // of 0.02 each

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

/// Returns the sum of squares that `bases` times the best coefficient
/// explains.
double ExplainedSquares(std::span<const double> bases,
                        std::span<const double> weights,
                        std::span<const double> gaps, double& coefficient) {
  double product = 0;
  double squares = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    product += weights[i] * bases[i] * gaps[i];
    squares += weights[i] * bases[i] * bases[i];
  }
  coefficient = product / squares;
  return product * coefficient;
}

void RequireErrors(std::span<const Size> sizes,
                   std::span<const double> errors) {
  ISOLOSS_ASSERT(!sizes.empty() && sizes.size() == errors.size());
}

double ExponentOfGrid(int step) {
  return kLargestExponent * (2.0 * step / kPowerSteps - 1);
}

}  // namespace

size_t CoefficientsOf(Form form) { return form == Form::kPowerLaw ? 3 : 2; }

double PowerLaw::At(const Size& size) const {
  return coefficient *
         std::pow(size.parameters / centre.parameters, of_parameters) *
         std::pow(size.tokens / centre.tokens, of_tokens);
}

PowerLawFit::PowerLawFit(std::span<const Size> sizes,
                         std::span<const double> errors)
    : weights_(WeightsOf(errors)) {
  RequireErrors(sizes, errors);
  centre_ = CentreOf(sizes);
  for (const Size& size : sizes) {
    log_parameters_.push_back(std::log(size.parameters / centre_.parameters));
    log_tokens_.push_back(std::log(size.tokens / centre_.tokens));
  }
  for (int i = 0; i <= kPowerSteps; ++i) {
    for (int j = 0; j <= kPowerSteps; ++j) {
      const double a = ExponentOfGrid(i);
      const double b = ExponentOfGrid(j);
      for (size_t cell = 0; cell < sizes.size(); ++cell) {
        bases_.push_back(
            std::exp(a * log_parameters_[cell] + b * log_tokens_[cell]));
      }
    }
  }
}

double PowerLawFit::Explained(double a, double b, std::span<const double> gaps,
                              double& coefficient) const {
  std::vector<double> bases(gaps.size());
  for (size_t i = 0; i < gaps.size(); ++i) {
    bases[i] = std::exp(a * log_parameters_[i] + b * log_tokens_[i]);
  }
  return ExplainedSquares(bases, weights_, gaps, coefficient);
}

PowerLaw PowerLawFit::Fit(std::span<const double> gaps) const {
  const size_t cells = gaps.size();
  ISOLOSS_ASSERT(cells == weights_.size());
  PowerLaw best{.centre = centre_};
  double most = -1;
  const auto consider = [&](double a, double b, double explained,
                            double coefficient) {
    if (explained <= most) return;
    most = explained;
    best = {coefficient, a, b, centre_};
  };
  double coefficient = 0;
  size_t point = 0;
  for (int i = 0; i <= kPowerSteps; ++i) {
    for (int j = 0; j <= kPowerSteps; ++j, ++point) {
      const double explained =
          ExplainedSquares(std::span(bases_).subspan(point * cells, cells),
                           weights_, gaps, coefficient);
      consider(ExponentOfGrid(i), ExponentOfGrid(j), explained, coefficient);
    }
  }
  double step = kLargestExponent / kPowerSteps;
  for (int halving = 0; halving < kHalvings; ++halving, step /= 2) {
    const PowerLaw around = best;
    for (const double da : {-step, 0.0, step}) {
      for (const double db : {-step, 0.0, step}) {
        const double a = std::clamp(around.of_parameters + da,
                                    -kLargestExponent, kLargestExponent);
        const double b = std::clamp(around.of_tokens + db, -kLargestExponent,
                                    kLargestExponent);
        const double explained = Explained(a, b, gaps, coefficient);
        consider(a, b, explained, coefficient);
      }
    }
  }
  return best;
}

double LossLaw::At(const Size& size) const {
  return floor + of_parameters * std::pow(size.parameters, -alpha) +
         of_tokens * std::pow(size.tokens, -beta);
}

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

namespace {

/// Returns both terms, which are 1 at N = D = 1.
std::pair<double, double> TermsOf(Form form, const Size& size, double alpha,
                                  double beta) {
  const double of_parameters = std::pow(size.parameters, -alpha);
  return {of_parameters, form == Form::kEffectiveSize
                             ? std::pow(size.tokens, -beta)
                             : of_parameters * std::pow(size.tokens, beta)};
}

}  // namespace

double TwoTermLaw::At(const Size& size) const {
  const auto [first, second] = TermsOf(form, size, alpha, beta);
  return u * first + v * second;
}

TwoTermLaw FitTwoTerms(Form form, std::span<const Size> sizes,
                       std::span<const double> errors,
                       std::span<const double> gaps, double alpha,
                       double beta) {
  RequireErrors(sizes, errors);
  ISOLOSS_ASSERT(form != Form::kPowerLaw);
  const auto [first, second] = TermsOf(form, CentreOf(sizes), alpha, beta);
  Eigen::MatrixXd design(static_cast<Eigen::Index>(sizes.size()), 2);
  Eigen::VectorXd values(static_cast<Eigen::Index>(sizes.size()));
  for (size_t cell = 0; cell < sizes.size(); ++cell) {
    const auto row = static_cast<Eigen::Index>(cell);
    const double weight = 1 / errors[cell];
    const auto terms = TermsOf(form, sizes[cell], alpha, beta);
    design(row, 0) = weight * terms.first / first;
    design(row, 1) = weight * terms.second / second;
    values(row) = weight * gaps[cell];
  }
  const Eigen::VectorXd solution =
      design.completeOrthogonalDecomposition().solve(values);
  return {.form = form,
          .u = solution(0) / first,
          .v = solution(1) / second,
          .alpha = alpha,
          .beta = beta};
}

}  // namespace isoloss::estimators
