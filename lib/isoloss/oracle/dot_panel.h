// Computes dot products of many rows with many rows, each as Dot() defines it.
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

/// Holds the rows of an operand and what is known of each row.
struct DotSide {
  MatrixView<const float> rows;
  std::vector<RowFacts> facts;

  explicit DotSide(MatrixView<const float> values);
};

using DotEstimates = std::array<std::array<Estimate, kDotLanes>, kDotRows>;

/// Packs kDotLanes rows of b side by side, to multiply them by one row of a
/// after another.
class DotPanel {
 public:
  /// Packs rows [first, first + kDotLanes) of b, but only steps [begin, end).
  void Pack(const DotSide& b, size_t first, size_t begin, size_t end);
  void Pack(const DotSide& b, size_t first) {
    Pack(b, first, 0, b.rows.cols());
  }

  /// The number of rows of b in the panel; the last panel may have fewer rows.
  size_t count() const { return count_; }

  /// Sets out[i][j] = Dot of row first + i of a and row j of the panel, over
  /// the packed steps and for the rows that exist.
  void Dots(const DotSide& a, size_t first, DotEstimates& out);

  /// Computes the dots of rows [first, end) of a, [end - first, kDotLanes]. If
  /// the rounding to BF16 can give only one number, the estimate is this number
  /// without any error.
  void RoundedDots(const DotSide& a, size_t first, size_t end,
                   std::vector<Estimate>& out);

  /// A pair is a row of a and a row of the panel.
  using Pair = std::pair<size_t, size_t>;

  /// Finds the pairs whose product may differ from `values` in a bit because of
  /// FP32 arithmetic (CannotFlip). Rows of a ascend.
  /// Shapes   values [a.rows, columns]; the panel's begin at `column`.
  void FindUncertain(const DotSide& a, MatrixView<const float> values,
                     size_t column, std::vector<Pair>& uncertain);
  /// Sets out[n] = Dot of pair n.
  void DotsOf(const DotSide& a, const std::vector<Pair>& pairs,
              std::vector<Estimate>& out);

 private:
  std::array<const float*, kDotRows> RowsFrom(const DotSide& a,
                                              size_t first) const;
  /// Returns the dot of row `row` of a with row `lane` of the panel; its sums
  /// are at [i, j].
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
