// Determines which row of which expert each (token, slot) assignment of a batch
// becomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"

namespace isoloss::expert_parallel {

/// Is the canonical order of a batch's T * K assignments: rows are grouped by
/// expert and, within one expert, ordered by (token, slot), whichever rank sent
/// them. The order depends on the expert ids alone. Memory is reused from batch
/// to batch.
class RoutingPlan {
 public:
  /// Orders the assignments of one batch. Asserts that every id is in
  /// [0, experts), that a token's ids are distinct, and that every assignment
  /// got exactly one row.
  /// Shapes   expert_ids [T, K], T * K < 2^31.
  void Build(MatrixView<const int32_t> expert_ids, size_t experts);

  size_t tokens() const { return row_of_slot_.rows(); }
  size_t slots() const { return row_of_slot_.cols(); }
  size_t rows() const { return token_of_row_.rows(); }
  size_t experts() const { return expert_begins_.size() - 1; }

  /// Expert e owns rows [begins[e], begins[e + 1]). The shape is [experts + 1].
  std::span<const size_t> expert_begins() const { return expert_begins_; }
  int64_t TokensOf(size_t expert) const {
    return static_cast<int64_t>(expert_begins_[expert + 1] -
                                expert_begins_[expert]);
  }
  /// The shape is [rows, 1].
  MatrixView<const int32_t> token_of_row() const {
    return token_of_row_.view();
  }
  /// The shape is [T, K].
  MatrixView<const int32_t> row_of_slot() const { return row_of_slot_.view(); }

 private:
  void CheckInvariants() const;

  std::vector<size_t> expert_begins_ = {0};
  std::vector<size_t> next_row_;
  Matrix<int32_t> token_of_row_;
  Matrix<int32_t> row_of_slot_;
};

}  // namespace isoloss::expert_parallel
