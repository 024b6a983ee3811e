// Describes how a gap depends on model size and data, by laws that can be
// fitted and evaluated for sizes that nobody trained.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/estimators/gap_cell.h"
#include "isoloss/estimators/words.h"

namespace isoloss::estimators {

/// The baseline's loss is E + A N^-alpha + B D^-beta in all forms.
enum class Form {
  /// gap = c N^a D^b, with a and b in [-1, 1].
  kPowerLaw,
  /// The arm learns as a model of fewer parameters from less data would:
  /// gap = u N^-alpha + v D^-beta (arXiv 2411.04330, 2505.14669). The gap fades
  /// towards large sizes, whatever the data say.
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
/// Reports show these names.
inline constexpr Named<Form> kFormTexts[] = {
    {"power law", Form::kPowerLaw},
    {"effective size", Form::kEffectiveSize},
    {"data penalty", Form::kDataPenalty}};
/// Returns how many numbers the gaps determine: 3, 2 or 2.
size_t CoefficientsOf(Form form);

/// The exponents of a power law have this bound by choice. Without bounds,
/// small gaps of small models fit any exponent.
inline constexpr double kLargestExponent = 1;

struct PowerLaw {
  double coefficient = 0;  ///< at `centre`, nats
  double of_parameters = 0;
  double of_tokens = 0;
  Size centre = {1, 1};

  double At(const Size& size) const;
};

/// Fits by least squares, each cell weighted by 1 / error^2. The coefficient
/// is exact. A grid of 0.05, which halves six times around its best point,
/// finds the exponents.
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

/// The loss of the baseline is E + A N^-alpha + B D^-beta.
struct LossLaw {
  double floor = 0;
  double of_parameters = 0;  ///< A at N = 1
  double of_tokens = 0;      ///< B at D = 1
  double alpha = 0;
  double beta = 0;

  double At(const Size& size) const;
};

/// These bound alpha and beta. Published fits lie between 0.2 and 0.5
/// (Hoffmann et al. 2022: 0.34 and 0.28; Kumar et al., arXiv 2411.04330: about
/// 0.5).
inline constexpr double kLeastDecay = 0.1;
inline constexpr double kLargestDecay = 0.7;

/// Fits alpha and beta (a grid of 0.02) and E, A, B >= 0 by least squares.
/// Shapes   as PowerLawFit.
class LossLawFit {
 public:
  LossLawFit(std::span<const Size> sizes, std::span<const double> errors);

  /// Returns nothing if no exponents give E, A, B >= 0.
  std::optional<LossLaw> Fit(std::span<const double> losses) const;

 private:
  /// A point of the grid is one pair of exponents.
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
/// Returns whether `sizes` determine the five numbers of a LossLaw: at least 6
/// cells with 3 sizes of each kind.
bool DeterminesLossLaw(std::span<const Size> sizes);

/// A law of kEffectiveSize or kDataPenalty is a sum of two terms with the
/// exponents of the baseline.
struct TwoTermLaw {
  Form form = Form::kEffectiveSize;
  double u = 0;  ///< of the first term at N = 1
  double v = 0;  ///< of the second one at N = D = 1
  double alpha = 0;
  double beta = 0;

  double At(const Size& size) const;
};

/// Fits u and v by least squares for given exponents. If several solutions are
/// equally good, it takes the smallest. `form` is not kPowerLaw.
TwoTermLaw FitTwoTerms(Form form, std::span<const Size> sizes,
                       std::span<const double> errors,
                       std::span<const double> gaps, double alpha, double beta);

}  // namespace isoloss::estimators
