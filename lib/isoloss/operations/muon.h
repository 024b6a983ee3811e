// Computes a step of Muon, right or with a mistake.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/operations/newton_schulz.h"

namespace isoloss::operations {

/// One update has these numbers and, if a mistake was made, these changes.
struct MuonRule {
  enum class Scale { kNone, kOriginal, kMatchRms, kUnclamped, kSpectral };
  enum class Input {
    kUpdated,   ///< the momentum after this step
    kBefore,    ///< the momentum before this step
    kGradient,  ///< no momentum
  };

  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  double factor = 1;  ///< beside the scale
  Scale scale = Scale::kOriginal;
  bool inverts_scale = false;
  bool nesterov = true;
  bool interpolates = true;  ///< the gradient counts by 1 - momentum
  bool decay_in_gradient = false;
  bool decay_without_lr = false;
  bool decay_scaled = false;  ///< by the factors of the update, too
  Input input = Input::kUpdated;
  double gradient_factor = 1;
  bool transposes = false;  ///< the result stays transposed
  NewtonSchulz iteration = {};

  /// Tells whether both iterate the same matrix in the same way.
  bool HasDirectionOf(const MuonRule& other) const;
};

/// Returns what the update is multiplied by besides the rate.
double ScaleOf(const MuonRule& rule, size_t rows, size_t cols);

/// Views a parameter as matrices: those of the last two axes, or of four axes
/// the first one against all others.
struct MuonShape {
  explicit MuonShape(const std::vector<size_t>& extent);

  size_t matrices = 1;
  size_t rows = 0;
  size_t cols = 0;
};

/// Computes parameters after one step. It remembers the last iterations.
class MuonSteps {
 public:
  explicit MuonSteps(const OperationCase& given);

  /// Compares the parameter with that of the rule. Iterations are made in
  /// `draws` other orders of sums, to learn what an order may change.
  ///
  /// An element may be off by six times the standard deviation of that, by the
  /// largest difference seen, and by one rounding of the iteration's type: of
  /// a normal error, 2e-9 are beyond the first of these alone.
  /// If all squares together are four times what is expected, or a
  /// multiple of the step or of the parameter is seen, the bound is two
  /// standard deviations.
  oracle::Comparison Compare(const MuonRule& rule, size_t draws);
  /// Returns the share of the update's squares that no multiples of the rule's
  /// direction and of the parameter explain; the sizes of rate, scale and decay
  /// do not count.
  double Unexplained(const MuonRule& rule);
  /// Returns the squares of an order's noise as a share of the direction's.
  double NoiseShare(const MuonRule& rule, size_t draws);
  /// A multiple of the step, or of the parameter, is in the recorded parameter
  /// besides what the rule gives.
  struct Multiple {
    double value = 0;
    double tolerance = 0;

    bool is_seen() const { return std::fabs(value) > tolerance; }
  };
  struct Multiples {
    Multiple step;
    Multiple parameter;
  };
  /// Orders of sums and roundings allow multiples up to the tolerance.
  Multiples MultiplesOf(const MuonRule& rule, size_t draws,
                        bool rounds_kept = false);
  /// Returns the step of each element by the direction, with the bound and the
  /// noise of the direction.
  std::vector<oracle::Estimate> StepsOf(const MuonRule& rule, size_t draws);
  /// Returns the part of the parameter that remains after its decay.
  double KeptShare(const MuonRule& rule) const;
  /// Returns what remains of element `i` of the parameter after its decay.
  double Kept(const MuonRule& rule, size_t i) const;
  /// Returns the gradient's factor that the recorded momenta tell.
  double GradientRatio(const MuonRule& rule) const;
  /// Returns the additions and multiplications of all iterations.
  double Cost(const MuonRule& rule) const;

 private:
  struct Known {
    MuonRule rule;
    size_t draws;
    std::vector<Direction> directions;
  };

  std::vector<float> InputOf(const MuonRule& rule) const;
  const std::vector<Direction>& DirectionsOf(const MuonRule& rule,
                                             size_t draws);
  oracle::Comparison CompareBy(const std::vector<oracle::Estimate>& steps,
                               const MuonRule& rule, size_t draws,
                               bool rounds_kept);
  float At(const char* name, size_t i) const;

  const OperationCase& given_;
  const MuonShape shape_;
  std::vector<Known> known_;
};

/// Returns the rules that the attributes allow, each in every usual way; the
/// likeliest come first.
std::vector<MuonRule> MuonRulesOf(const Operation& operation);
/// Compares the momentum, and names its mistakes.
void CheckMomentum(const OperationCase& given, std::vector<Finding>& findings);

struct MuonMistake {
  const char* name;
  const char* sentence;
  /// Returns false if the mistake can't be made here.
  bool (*alter)(MuonRule& rule);
};

std::span<const MuonMistake> MuonMistakes();

}  // namespace isoloss::operations
