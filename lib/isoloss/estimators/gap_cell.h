// Describes an arm's gap at one model size and one number of tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// A size is a model's parameters and the tokens that train it.
struct Size {
  double parameters = 0;
  double tokens = 0;
  /// A token uses these parameters: all but those of experts that it is not
  /// sent to. Empty: all of them.
  std::optional<double> active_parameters = std::nullopt;

  double ActiveParameters() const {
    return active_parameters.value_or(parameters);
  }
  /// Approximates the floating-point operations of a training by 6 N D, with
  /// the active parameters for N.
  double Flops() const { return 6 * ActiveParameters() * tokens; }
};

/// A cell is one size of a ladder. The seed is the unit: each seed gives one
/// gap, and runs of different sizes are independent.
struct GapCell {
  std::string name;  ///< for people, "0.34M-4"
  Size size;
  /// A gap is the arm's loss minus the baseline's loss, nats. There is one for
  /// each seed.
  std::vector<double> gaps;
  /// The baseline's losses, nats, belong to the same seeds.
  std::vector<double> baseline;
};

}  // namespace isoloss::estimators
