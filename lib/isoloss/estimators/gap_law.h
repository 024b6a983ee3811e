// How a gap depends on model size and data: laws that can be fitted and asked
// for sizes that nobody trained.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/words.h"

namespace isoloss::estimators {

/// Forms of a law. The baseline's loss is E + A N^-alpha + B D^-beta.
enum class Form {
  /// gap = c N^a D^b, with a and b in [-1, 1].
  kPowerLaw,
  /// The arm learns as a model of fewer parameters from less data would:
  /// gap = u N^-alpha + v D^-beta (arXiv 2411.04330, 2505.14669). Whatever the
  /// data say, it fades towards large sizes.
  kEffectiveSize,
  /// Each token adds to the harm that a model's weights carry:
  /// gap = u N^-alpha + v N^-alpha D^beta (after arXiv 2501.02423, whose
  /// penalty has the second term). It may grow with data without bound.
  kDataPenalty,
};
inline constexpr Form kForms[] = {Form::kPowerLaw, Form::kEffectiveSize,
                                  Form::kDataPenalty};
inline constexpr Named<Form> kFormNames[] = {
    {"power_law", Form::kPowerLaw},
    {"effective_size", Form::kEffectiveSize},
    {"data_penalty", Form::kDataPenalty}};
/// For people.
inline constexpr Named<Form> kFormTexts[] = {
    {"power law", Form::kPowerLaw},
    {"effective size", Form::kEffectiveSize},
    {"data penalty", Form::kDataPenalty}};
/// Numbers that the gaps determine: 3, 2, 2.
size_t CoefficientsOf(Form form);

/// Exponents of a power law. This is a choice: without bounds, small gaps of
/// small models fit any exponent.
inline constexpr double kLargestExponent = 1;

/// A fitted power law.
struct PowerLaw {
  double coefficient = 0;  ///< at `centre`, nats
  double of_parameters = 0;
  double of_tokens = 0;
  Size centre = {1, 1};

  double At(const Size& size) const;
};

/// Least squares, each cell weighted by 1 / error^2: the coefficient exactly,
/// the exponents by a grid of 0.05 that halves six times around its best point.
/// Shapes   sizes, gaps and errors have one value for each cell, at least 1.
class PowerLawFit {
 public:
  PowerLawFit(std::span<const Size> sizes, std::span<const double> errors);

  PowerLaw Fit(std::span<const double> gaps) const;

 private:
  double Explained(double a, double b, std::span<const double> gaps,
                   double& coefficient) const;

  Size centre_;
  std::vector<double> log_parameters_;  // relative to the centre
  std::vector<double> log_tokens_;
  std::vector<double> weights_;
  std::vector<double> bases_;  // of the grid: [points, cells]
};

/// Loss of the baseline, E + A N^-alpha + B D^-beta.
struct LossLaw {
  double floor = 0;
  double of_parameters = 0;  ///< A at N = 1
  double of_tokens = 0;      ///< B at D = 1
  double alpha = 0;
  double beta = 0;

  double At(const Size& size) const;
};

/// Range of alpha and beta: published fits lie between 0.2 and 0.5 (Hoffmann et
/// al. 2022: 0.34 and 0.28; Kumar et al., arXiv 2411.04330: about 0.5).
inline constexpr double kLeastDecay = 0.1;
inline constexpr double kLargestDecay = 0.7;

/// Least squares over alpha and beta (a grid of 0.02) and E, A, B >= 0.
/// Shapes   as PowerLawFit.
class LossLawFit {
 public:
  LossLawFit(std::span<const Size> sizes, std::span<const double> errors);

  /// Empty if no exponents give E, A, B >= 0.
  std::optional<LossLaw> Fit(std::span<const double> losses) const;

 private:
  /// One pair of exponents.
  struct Point {
    double alpha;
    double beta;
    std::vector<double> terms;  ///< [2, cells], 1 at the centre
    std::vector<double> solve;  ///< [3, cells]: (E, A, B) of the losses
  };

  Size centre_;
  std::vector<double> weights_;
  std::vector<Point> points_;
};
/// Whether so many sizes determine its five numbers: at least 6 cells with 3
/// sizes of each kind.
bool DeterminesLossLaw(std::span<const Size> sizes);

/// kEffectiveSize or kDataPenalty: a sum of two terms, whose exponents are the
/// baseline's.
struct TwoTermLaw {
  Form form = Form::kEffectiveSize;
  double u = 0;  ///< of the first term at N = 1
  double v = 0;  ///< of the second one at N = D = 1
  double alpha = 0;
  double beta = 0;

  double At(const Size& size) const;
};

/// Least squares for u and v, given the exponents; the smallest of several
/// equal solutions. `form` is not kPowerLaw.
TwoTermLaw FitTwoTerms(Form form, std::span<const Size> sizes,
                       std::span<const double> errors,
                       std::span<const double> gaps, double alpha, double beta);

}  // namespace isoloss::estimators
