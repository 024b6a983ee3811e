// Recomputes the largest magnitudes that delayed scaling looks back to.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// Follows a run from its first step. For each operand that has delayed scaling
/// in one of the run's recipes, and each of its groups, it keeps the largest
/// finite magnitudes of x, W or dy. There is one per step of the operand's
/// history, over the whole batch.
class AmaxOracle {
 public:
  /// `recipes` are those of all phases, and must stay valid.
  explicit AmaxOracle(std::vector<const precision::ResolvedRecipe*> recipes)
      : recipes_(std::move(recipes)), histories_(recipes_.size()) {}

  /// The largest magnitude of each operand's history, for the next step, if
  /// that has recipe `phase`. The map is empty before the first step and
  /// without delayed scaling.
  const OperandHistories& histories(size_t phase) const {
    return histories_[phase];
  }

  /// Appends the magnitudes of a step.
  /// Errors   FormatError if the step did not announce one of the operands.
  void EndStep(const StepInputs& inputs);

 private:
  void Append(const OperandHistories::key_type& place, float largest,
              const std::vector<size_t>& lengths);

  std::vector<const precision::ResolvedRecipe*> recipes_;
  std::map<OperandHistories::key_type, std::deque<float>> steps_;
  std::vector<OperandHistories> histories_;  // by phase
};

}  // namespace isoloss::step_checks
