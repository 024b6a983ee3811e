// The oracle's own account of what delayed scaling looks back to.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "isoloss/oracle/step_inputs.h"

namespace isoloss::oracle {

/// Follows a run from its first step: for each operand whose quantisation looks
/// back, and each of its groups, the largest finite magnitude that each step
/// announced of the whole batch's x, W or dy, as many as it looks back to.
class AmaxOracle {
 public:
  /// The largest of each operand's steps, for the step that comes next; empty
  /// before the first one, and without delayed scaling.
  const OperandHistories& histories() const { return histories_; }

  /// The step becomes the newest one.
  /// Errors   FormatError if the step did not announce one of the operands.
  void EndStep(const StepInputs& inputs);

 private:
  std::map<OperandHistories::key_type, std::deque<float>> steps_;
  OperandHistories histories_;
};

}  // namespace isoloss::oracle
