// Predicts the sums of a product to the bit, as a tensor core adds them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/prepared_operand.h"
#include "isoloss/operations/arithmetic.h"
#include "isoloss/operations/product.h"
#include "isoloss/oracle/scalar_operand.h"

namespace isoloss::operations {

/// Holds the operands of one group, as the accumulator reads them.
class PredictedSums {
 public:
  /// The arithmetic must have bits, and sides must have no changes.
  /// Errors   ShapeError if scales and promotion do not fit each other.
  PredictedSums(const ProductGroup& group, const Arithmetic& arithmetic);

  size_t rows() const { return a_.values.rows(); }
  size_t cols() const { return b_.values.rows(); }
  size_t depth() const { return a_.values.cols(); }

  /// Returns the sum of one element.
  float At(size_t row, size_t col) const {
    return Finished(row, col, PartsAt(row, col));
  }
  /// Returns the sums of the parts of one element, before scales of results.
  std::vector<float> PartsAt(size_t row, size_t col) const;
  float Finished(size_t row, size_t col, std::vector<float> parts) const;
  /// Sets sums to rows [first, first + sums.rows()) of the product.
  void Rows(size_t first, Matrix<float>& sums);
  /// Returns a number of rows whose parts fit into a cache.
  size_t StripRows() const;

  /// Returns all products of an element in exact arithmetic, under its scales.
  double Exact(size_t row, size_t col) const;
  /// Returns the sum of one element if the accumulator added exactly, or as an
  /// ascending chain of FP32 fused multiply-adds does.
  float ExactAt(size_t row, size_t col) const;
  float ChainAt(size_t row, size_t col) const;
  /// Returns the largest error of FP32 sums in any order.
  double LargestError(size_t row, size_t col) const;
  /// Tells whether each row has one FP32 scale, for all of its steps.
  static bool ScalesRows(const ProductGroup& group);
  /// Tells whether rows of both sides have FP32 scales, and those of one side
  /// change on the way.
  static bool ScalesPieces(const ProductGroup& group);

  /// Returns whether the operands serve another arithmetic, too, and sets it.
  bool Use(const Arithmetic& arithmetic);

 private:
  /// A chain of one sum that begins with +0.
  struct Chain {
    size_t begin;
    size_t end;
    size_t piece;  ///< its scales have this number
    bool begins_part;
  };

  void ListChains();
  void PackPanels();
  std::vector<float> Parts(size_t row, size_t col,
                           std::span<const float> chains) const;
  bool is_scaled() const { return a_.factors.size() + b_.factors.size() > 0; }

  Arithmetic arithmetic_;
  oracle::ScalarPieces pieces_;
  kernels::PreparedOperand a_;
  kernels::PreparedOperand b_;
  std::vector<Chain> chains_;
};

}  // namespace isoloss::operations
