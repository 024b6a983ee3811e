// Lays the scales of an operand out as operation files do.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/operations/product.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::operations {

/// Holds the scales of all groups in the order of operation files.
class ScaleGrid {
 public:
  /// Returns the grid that the scales fit, if any does. E8M0 bytes have blocks
  /// of 32. Others have the blocks of the quantisation, or one scale for each
  /// row of these.
  static ScaleGrid Of(const std::vector<const Side*>& sides,
                      const std::vector<oracle::ScalarTensor>& tensors,
                      const Scales& scales);

  bool Fits(const Scales& scales) const {
    return wanted.size() == scales.values.size();
  }
  size_t cols() const { return cols_; }
  /// Returns the index of the scale of an element of a group.
  size_t Of(size_t group, size_t row, size_t col) const {
    return (first_rows_[group] + row / Size(true)) * cols_ + col / Size(false);
  }
  std::string Place(size_t index) const;

  std::vector<float> wanted = {};

 private:
  /// There is one scale for each `block` elements along the contraction and
  /// `across` rows of the operand.
  ScaleGrid(const std::vector<const Side*>& sides,
            const std::vector<oracle::ScalarTensor>& tensors,
            const Scales& scales, size_t block, size_t across);

  size_t Size(bool of_rows) const {
    return of_rows == down_ ? block_ : across_;
  }
  size_t Ceil(size_t size, bool of_rows) const {
    return (size + Size(of_rows) - 1) / Size(of_rows);
  }

  bool down_;
  size_t block_;
  size_t across_;
  size_t cols_ = 0;
  std::vector<size_t> first_rows_;
};

}  // namespace isoloss::operations
