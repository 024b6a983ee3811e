// Computes dot products of many rows with many rows, each as Dot() defines it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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

/// Computes dot products of chosen pairs of rows.
class DotPairs {
 public:
  /// A pair is a row of a and a row of b.
  using Pair = std::pair<size_t, size_t>;

  /// Sets out[n] = Dot of pair n over steps [begin, end).
  void Dots(const DotSide& a, const DotSide& b, size_t begin, size_t end,
            std::span<const Pair> pairs, std::vector<Estimate>& out);

 private:
  TermSums sums_;
  Matrix<float> left_;  // of pairs, [depth, kDotLanes]
  Matrix<float> right_;
};

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

  /// Sets out[i][j] to the same sum with a larger bound and more noise, which
  /// take a fraction of the time: those of factors at their norms and of a
  /// chain that is always at its highest.
  void RoughDots(const DotSide& a, size_t first, DotEstimates& out);

  /// Computes the dots of rows [first, end) of a, [end - first, kDotLanes]. If
  /// the rounding to BF16 can give only one number, the estimate is this number
  /// without any error.
  void RoundedDots(const DotSide& a, size_t first, size_t end,
                   std::vector<Estimate>& out);

  /// Finds the rows of a and b whose product, rounded to BF16, may differ from
  /// `values` in a bit because of FP32 arithmetic (CannotFlip). If there is an
  /// addend, the rounded product is added to it, and rounded again. Rows of a
  /// ascend.
  /// Shapes   values [a.rows, b.rows]; addend the same, or empty.
  void FindUncertain(const DotSide& a, MatrixView<const float> values,
                     MatrixView<const float> addend,
                     std::vector<DotPairs::Pair>& uncertain);

 private:
  std::array<const float*, kDotRows> RowsFrom(const DotSide& a,
                                              size_t first) const;
  const DotSide* b_ = nullptr;
  size_t first_ = 0;
  size_t count_ = 0;
  size_t begin_ = 0;
  Matrix<float> steps_;  // [depth, kDotLanes]
  LaneFacts facts_;
  std::vector<double> scratch_;
  TermSums sums_;
  ExactSums exact_;
  DotPairs pairs_;
};

}  // namespace isoloss::oracle
