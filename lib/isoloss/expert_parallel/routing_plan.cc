#include "isoloss/expert_parallel/routing_plan.h"

#include <limits>
#include <numeric>

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel {

void RoutingPlan::Build(MatrixView<const int32_t> expert_ids, size_t experts) {
  const size_t tokens = expert_ids.rows();
  const size_t slots = expert_ids.cols();
  ISOLOSS_ASSERT(tokens * slots <= std::numeric_limits<int32_t>::max());
  token_of_row_.ResizeUninitialized(tokens * slots, 1);
  row_of_slot_.ResizeUninitialized(tokens, slots);

  // A counting sort is stable: walking tokens and slots in order yields the
  // order (expert, token, slot).
  expert_begins_.assign(experts + 1, 0);
  for (size_t token = 0; token < tokens; ++token) {
    for (size_t slot = 0; slot < slots; ++slot) {
      const auto expert = static_cast<size_t>(expert_ids(token, slot));
      ISOLOSS_ASSERT(expert < experts);
      ++expert_begins_[expert + 1];
    }
  }
  std::partial_sum(expert_begins_.begin(), expert_begins_.end(),
                   expert_begins_.begin());
  next_row_.assign(expert_begins_.begin(), expert_begins_.end() - 1);
  for (size_t token = 0; token < tokens; ++token) {
    for (size_t slot = 0; slot < slots; ++slot) {
      const size_t row =
          next_row_[static_cast<size_t>(expert_ids(token, slot))]++;
      token_of_row_(row, 0) = static_cast<int32_t>(token);
      row_of_slot_(token, slot) = static_cast<int32_t>(row);
    }
  }
  CheckInvariants();
}

void RoutingPlan::CheckInvariants() const {
  ISOLOSS_ASSERT(expert_begins_.back() == rows());
  for (size_t expert = 0; expert < experts(); ++expert) {
    // Each expert's rows must be filled completely.
    ISOLOSS_ASSERT(next_row_[expert] == expert_begins_[expert + 1]);
    // Tokens must ascend, so that no token comes twice.
    for (size_t row = expert_begins_[expert] + 1;
         row < expert_begins_[expert + 1]; ++row) {
      ISOLOSS_ASSERT(token_of_row_(row - 1, 0) < token_of_row_(row, 0));
    }
  }
}

}  // namespace isoloss::expert_parallel
