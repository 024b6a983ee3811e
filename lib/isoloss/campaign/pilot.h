// How far chance drives two equal trainings apart: learnt before an experiment
// is planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/gate/policy.h"
#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

/// Standard deviation of the difference of a seed pair, in percent of the
/// baseline's loss.
struct Spread {
  double percent = 0;
  int64_t steps = 0;  ///< of the training that it is of
  bool measured = false;

  /// After `steps`: the same up to those of the pilot, beyond them in
  /// proportion to the root of the steps. Measured on dsv3-nano: 0.15 % after
  /// 100 steps, 0.08 to 0.20 % after 320, so this is rather too much.
  double After(int64_t steps) const;
};

/// Beyond so many times the steps of the pilot the spread is not foretold: 0.5
/// to 1 % were seen after 600 steps, as some runs had peaks of the loss.
inline constexpr int64_t kForetold = 4;

/// Steps of a pilot. It takes kPilotSteps if they fit into kPilotShare of the
/// time that the experiment has. Fewer than kFewestPilotSteps say nothing: one
/// rounding takes some 40 steps to grow to what chance does.
inline constexpr int64_t kPilotSteps = 80;
inline constexpr int64_t kFewestPilotSteps = 40;
inline constexpr double kPilotShare = 0.2;
inline constexpr size_t kPilotSeeds = 4;

/// What texts of bytes had, for want of a pilot.
Spread AssumedSpread();

/// The baseline (the first arm), the candidate (the second) and null arms of
/// `experiment`, on kPilotSeeds seeds that it does not train, and so many
/// steps.
train::Experiment PilotOf(train::Experiment experiment, int64_t steps);

/// Trains `pilot` (PilotOf) in a temporary folder, with progress on standard
/// error. The spread is the larger one of training losses and of held-out
/// losses, over the last three fifths of the steps and the arms beside the
/// baseline. Of it the upper limit at 80 % confidence is taken.
/// Special  empty if a signal came; AssumedSpread if no two losses are finite
///          or no loss differs.
/// Exact    the same on every machine.
/// Errors   as train::ExecuteRuns.
std::optional<Spread> TrainPilot(const train::Experiment& pilot);

/// "a pilot of 4 seeds and 80 steps, upper limit at 80 %".
std::string SpreadText(const Spread& spread);

/// Probability that recipes that do not differ pass a test of level L5 with so
/// many seed pairs of this spread.
double PowerOf(double spread_percent, size_t pairs, const gate::Policy& policy);

/// The same of an experiment that has gate.spread_percent; else empty, and so
/// for a policy with a margin in tokens.
std::optional<double> ExpectedPower(const train::Experiment& experiment,
                                    const gate::Policy& policy);

/// "0.87", or "above 0.95", beyond which init prefers more steps.
std::string PowerText(double power);

}  // namespace isoloss::campaign
