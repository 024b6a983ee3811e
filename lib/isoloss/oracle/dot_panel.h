// Dot products of many rows with many rows, as Dot() defines each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/term_sums.h"

namespace isoloss::oracle {

/// Rows of an operand and what is known of each.
struct DotSide {
  MatrixView<const float> rows;
  std::vector<RowFacts> facts;

  explicit DotSide(MatrixView<const float> values);
};

using DotEstimates = std::array<std::array<Estimate, kDotLanes>, kDotRows>;

/// kDotLanes rows of b, side by side, to meet one row of a after the other.
class DotPanel {
 public:
  /// Rows [first, first + kDotLanes) of b, of steps [begin, end) alone.
  void Pack(const DotSide& b, size_t first, size_t begin, size_t end);
  void Pack(const DotSide& b, size_t first) {
    Pack(b, first, 0, b.rows.cols());
  }

  /// Rows that are there.
  size_t count() const { return count_; }

  /// out[i][j] = Dot of row first + i of a, of the same steps, and row j of the
  /// panel, for the rows that are there.
  void Dots(const DotSide& a, size_t first, DotEstimates& out);

  /// Dots of rows [first, end) of a, [end - first, kDotLanes], but an estimate
  /// is the exact sum rounded to BF16, without any error, where no other number
  /// can come of rounding it.
  void RoundedDots(const DotSide& a, size_t first, size_t end,
                   std::vector<Estimate>& out);

  /// A row of a and one of the panel.
  using Pair = std::pair<size_t, size_t>;

  /// Of all rows of a, in ascending order: pairs whose product is not known to
  /// be `values` to the bit, whatever FP32 makes of it (CannotFlip).
  /// Shapes   values [a.rows, columns]; the panel's begin at `column`.
  void FindUncertain(const DotSide& a, MatrixView<const float> values,
                     size_t column, std::vector<Pair>& uncertain);
  /// out[n] = Dot of pair n.
  void DotsOf(const DotSide& a, const std::vector<Pair>& pairs,
              std::vector<Estimate>& out);

 private:
  std::array<const float*, kDotRows> RowsFrom(const DotSide& a,
                                              size_t first) const;
  /// Row `row` of a with row `lane` of the panel, whose sums are at [i, j].
  Estimate Result(const DotSide& a, size_t row, size_t lane, size_t i,
                  size_t j) const;
  bool AnyOrderFits(const float* left, const float* right, double size) const;

  const DotSide* b_ = nullptr;
  size_t first_ = 0;
  size_t count_ = 0;
  size_t begin_ = 0;
  Matrix<float> steps_;  // [depth, kDotLanes]
  LaneFacts facts_;
  std::vector<double> scratch_;
  TermSums sums_;
  ExactSums exact_;
  Matrix<float> left_;  // of pairs, [depth, kDotLanes]
  Matrix<float> right_;
};

}  // namespace isoloss::oracle
