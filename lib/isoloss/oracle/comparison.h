// Classifies the elements of one tensor against exact values: an element is
// equal, a flip or other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/flip_clusters.h"
#include "isoloss/oracle/noise_sums.h"
#include "isoloss/oracle/reach.h"
#include "isoloss/oracle/sample.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Counts how many elements of one tensor are equal, flips or other.
class Comparison {
 public:
  explicit Comparison(Grid grid) : grid_(grid) {}

  /// Adds an element. `expected` describes the arithmetic before the last
  /// rounding, which is to the tensor's grid. Let want be `exact` rounded to
  /// the grid.
  ///   equal  value has want's bits, both are zero, or both are NaN
  ///   flip   kBf16: the value lies between exact - bound and exact + bound,
  ///          both rounded; kFp32: |value - exact| <= bound + half an ulp
  ///   other  neither; any value but want if there is no finite bound
  void Add(size_t row, size_t column, float value, const Estimate& expected) {
    if (grid_ == Grid::kBf16 && IsFarFromFlips(value, expected)) {
      CountEqual(1);
    } else {
      AddAny(row, column, value, expected);
    }
  }
  void Add(size_t row, size_t column, float value, double exact, double bound,
           double noise) {
    Add(row, column, value,
        Estimate{.exact = exact, .bound = bound, .noise = noise});
  }

  /// Adds an element that is expected to be formula<Estimate>(). If
  /// formula<Reach>() already shows that it is far from flips, that is enough.
  template <typename Formula>
  void AddResult(size_t row, size_t column, float value,
                 const Formula& formula) {
    if (grid_ == Grid::kBf16 &&
        IsFarFromFlips(value, formula.template operator()<Reach>())) {
      CountEqual(1);
    } else {
      Add(row, column, value, formula.template operator()<Estimate>());
    }
  }

  /// Adds a copy, which must have exactly these bits. NaN equals NaN.
  void AddExact(size_t row, size_t column, float value, float expected);

  void AddExactRow(size_t row, const float* values, const float* expected,
                   size_t columns);

  /// Adds `elements` equal values that no error could change, so that they
  /// expect no flips. The grid must not be FP32, whose noise counts.
  void AddEqual(size_t elements);

  /// Adds a value that differs from `expected` for a reason that has no size,
  /// such as a missing tensor or an undeclared format.
  void AddOther(size_t row, size_t column, float value, double expected);

  /// Adds the elements that a sample of the tensor, or of a part of it, does
  /// not see.
  void AddUnseen(const Sample& sample) {
    AddUnseen(static_cast<int64_t>(sample.size() - sample.seen()),
              static_cast<int64_t>(sample.draws()));
  }
  /// `draws` chose what was compared; 0 means that nothing was left out.
  void AddUnseen(int64_t elements, int64_t draws);

  /// Adds the counts of `part`, which belongs to the same tensor.
  void Merge(const Comparison& part);

  int64_t elements() const { return row_.elements; }
  /// Returns how many elements were compared or are unseen.
  int64_t tensor_elements() const {
    return row_.elements + row_.unseen_elements;
  }
  int64_t other() const { return row_.other; }
  /// Says for each row whether it has an element that is other. It ends with
  /// the last row that has one.
  const std::vector<bool>& wrong_rows() const { return wrong_rows_; }
  /// Returns the counts; the caller fills in case, step and tensor. If no
  /// element differs, worst_ratio is 0, the place is -1 and the values are NaN.
  ///
  /// worst_ratio is the distance of the exact value from the numbers that round
  /// to the tensor's value, divided by the bound. Without a bound (a copy) it
  /// is 1 plus the difference in units of FP32's last place.
  runlog::OracleRow Row() const;

 private:
  void CountEqual(size_t elements) {
    row_.elements += static_cast<int64_t>(elements);
    row_.equal += static_cast<int64_t>(elements);
  }
  void AddAny(size_t row, size_t column, float value, const Estimate& expected);
  /// Adds an element that is not equal and returns whether it is a flip.
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
  // noise_ is for a grid of FP32, flip_clusters_ for every coarser grid.
  NoiseSums noise_;
  FlipClusters flip_clusters_;
};

}  // namespace isoloss::oracle
