// How elements of one tensor compare with exact values: equal, flip or other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/flip_clusters.h"
#include "isoloss/oracle/noise_sums.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Whether it is clear at first sight that `value` is `expected` rounded to
/// BF16 and that nothing can flip it: its probability is 0.
inline bool IsFarFromFlips(float value, const Estimate& expected) {
  return expected.jump_probability == 0.0 &&
         SurelyRoundsToBf16(expected.exact,
                            internal::kFarthestTail * expected.noise, value);
}

/// Counts the elements of one tensor.
class Comparison {
 public:
  explicit Comparison(Grid grid) : grid_(grid) {}

  /// `expected`: of the arithmetic before the last rounding, which is to the
  /// tensor's grid. Let want be `exact` so rounded.
  ///   equal  value has want's bits, both are zero, or both are NaN
  ///   flip   kBf16: the value lies between exact - bound and exact + bound,
  ///          both rounded; kFp32: |value - exact| <= bound + half an ulp
  ///   other  neither; any other value than want if there is no finite bound
  void Add(size_t row, size_t column, float value, const Estimate& expected) {
    if (grid_ == Grid::kBf16 && IsFarFromFlips(value, expected)) {
      ++row_.elements;
      ++row_.equal;
    } else {
      AddAny(row, column, value, expected);
    }
  }
  void Add(size_t row, size_t column, float value, double exact, double bound,
           double noise) {
    Add(row, column, value,
        Estimate{.exact = exact, .bound = bound, .noise = noise});
  }

  /// A value that must have exactly these bits (a copy); NaN equals NaN.
  void AddExact(size_t row, size_t column, float value, float expected);

  /// A row of copies.
  void AddExactRow(size_t row, const float* values, const float* expected,
                   size_t columns);

  /// So many values that are equal, and of which no error could make anything
  /// else: they expect no flips. Not of a grid of FP32, whose noise counts.
  void AddEqual(size_t elements);

  /// A value that must be `expected` and isn't, for a reason that has no size
  /// (a missing tensor, an undeclared format).
  void AddOther(size_t row, size_t column, float value, double expected);

  /// Counts those of `part`, of the same tensor, as well.
  void Merge(const Comparison& part);

  int64_t elements() const { return row_.elements; }
  int64_t other() const { return row_.other; }
  /// Whether each row has others, up to the last one that has.
  const std::vector<bool>& wrong_rows() const { return wrong_rows_; }
  /// Counts only; case, step and tensor are the caller's. Without an element
  /// that differs worst_ratio is 0, the place -1 and the values NaN.
  ///
  /// worst_ratio measures, relative to the bound, how far the exact value is
  /// from those that round to the tensor's; without a bound (a copy) it is 1
  /// plus the difference in units of FP32's last place.
  runlog::OracleRow Row() const;

 private:
  void AddAny(size_t row, size_t column, float value, const Estimate& expected);
  /// Of an element that is not equal; whether it is a flip.
  bool AddDifferent(size_t row, size_t column, float value, float want,
                    const Estimate& expected);
  void AddOther(size_t row, size_t column, float value, double expected,
                int64_t elements);
  void KeepWorst(size_t row, size_t column, float value, double exact,
                 double ratio);
  void CountOther(size_t row);

  Grid grid_;
  runlog::OracleRow row_;
  std::vector<bool> wrong_rows_;
  bool has_worst_ = false;
  // The one where the grid is FP32, the other where it is not.
  NoiseSums noise_;
  FlipClusters flip_clusters_;
};

}  // namespace isoloss::oracle
