// Measures how far chance drives two equal trainings apart, before an
// experiment is planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/gate/policy.h"
#include "isoloss/train/experiment.h"

namespace isoloss::init {

/// The spread is the standard deviation of the difference of a seed pair, in
/// percent of the baseline's loss.
struct Spread {
  double percent = 0;
  int64_t steps = 0;  ///< of the training that it is of
  bool measured = false;

  /// Returns the spread after `steps`. It is the same up to the steps of the
  /// pilot, and then grows with the root of the steps. Measured on dsv3-nano:
  /// 0.15 % after 100 steps, 0.08 to 0.20 % after 320, so this is rather too
  /// much.
  double After(int64_t steps) const;
};

/// The spread is not predicted beyond this multiple of the pilot's steps: 0.5
/// to 1 % were seen after 600 steps, as some runs had peaks of the loss.
inline constexpr int64_t kForetold = 4;

/// A pilot takes kPilotSteps if they fit into kPilotShare of the time that the
/// experiment has. Fewer than kFewestPilotSteps say nothing: one rounding takes
/// some 40 steps to grow to what chance does.
inline constexpr int64_t kPilotSteps = 80;
inline constexpr int64_t kFewestPilotSteps = 40;
inline constexpr double kPilotShare = 0.2;
inline constexpr size_t kPilotSeeds = 4;

/// Returns the spread that texts of bytes had, if there is no pilot.
Spread AssumedSpread();

/// Returns a pilot of `steps` steps on kPilotSeeds seeds that `experiment` does
/// not train. It has the baseline (the first arm), the candidate (the second)
/// and null arms.
train::Experiment PilotOf(train::Experiment experiment, int64_t steps);

/// Trains `pilot` (PilotOf) in a temporary folder, with progress on standard
/// error. The spread is the larger one of training losses and of held-out
/// losses, over the last three fifths of the steps and the arms beside the
/// baseline. The result is its upper limit at 80 % confidence.
/// Special  empty if a signal came; AssumedSpread if no two losses are finite
///          or no loss differs.
/// Exact    the same on every machine.
/// Errors   as train::ExecuteRuns.
std::optional<Spread> TrainPilot(const train::Experiment& pilot);

/// Returns a text such as "a pilot of 4 seeds and 80 steps, upper limit at 80
/// %".
std::string SpreadText(const Spread& spread);

/// Returns the probability that recipes that do not differ pass a test of level
/// L5 with `pairs` seed pairs of this spread.
double PowerOf(double spread_percent, size_t pairs, const gate::Policy& policy);

/// Returns PowerOf for an experiment that has gate.spread_percent. Returns
/// nothing without that key, or if the policy has a margin in tokens.
std::optional<double> ExpectedPower(const train::Experiment& experiment,
                                    const gate::Policy& policy);

/// Returns a text such as "0.87", or "above 0.95", beyond which init prefers
/// more steps.
std::string PowerText(double power);

}  // namespace isoloss::init
