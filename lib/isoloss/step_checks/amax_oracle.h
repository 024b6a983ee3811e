// Recomputes the largest magnitudes that delayed scaling looks back to.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// Follows a run from its first step. For each operand that has delayed
/// scaling, and each of its groups, it keeps the largest finite magnitudes of
/// x, W or dy. There is one per step of the operand's history, over the whole
/// batch.
class AmaxOracle {
 public:
  /// The largest magnitude of each operand's history, for the next step. The
  /// map is empty before the first step and without delayed scaling.
  const OperandHistories& histories() const { return histories_; }

  /// Appends the magnitudes of a step.
  /// Errors   FormatError if the step did not announce one of the operands.
  void EndStep(const StepInputs& inputs);

 private:
  std::map<OperandHistories::key_type, std::deque<float>> steps_;
  OperandHistories histories_;
};

}  // namespace isoloss::step_checks
