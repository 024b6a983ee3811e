// Lays the scales of an operand out as operation files do.
#pragma once

#include <cstddef>
#include <set>
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
  /// row of these. Blocks are those of each group. Where one block spans a
  /// group, an empty group may have a scale, too, which nothing reads. Groups
  /// that share a maximum may share one scale.
  static ScaleGrid Of(const std::vector<const Side*>& sides,
                      const std::vector<oracle::ScalarTensor>& tensors,
                      const Scales& scales);

  bool Fits(const Scales& scales) const {
    return wanted.size() == scales.values.size();
  }
  size_t cols() const { return cols_; }
  /// Returns the index of the scale of an element of a group.
  size_t Of(size_t group, size_t row, size_t col) const {
    const Group& of = groups_[group];
    return (of.first_row + row / of.rows) * cols_ + col / of.cols;
  }
  /// Returns whether the scale belongs to a group without elements.
  bool IsUnused(size_t index) const { return unused_.contains(index); }
  std::string Place(size_t index) const;

  std::vector<float> wanted = {};

 private:
  /// A scale has so many rows and columns of a group's values.
  struct Group {
    size_t first_row;
    size_t rows;
    size_t cols;
  };
  /// Files may have scales in these ways.
  struct Way {
    bool blocks_of_32 = false;  ///< along the contraction
    bool each_row = false;      ///< whatever rows the quantisation's cells have
    bool of_empty_groups = false;
  };

  ScaleGrid(const std::vector<const Side*>& sides,
            const std::vector<oracle::ScalarTensor>& tensors,
            const Scales& scales, Way way);
  void Append(const Side& side, const oracle::ScalarTensor& tensor,
              const Scales& scales, Way way);
  /// Keeps one scale for all groups.
  void Share();

  bool down_;
  size_t cols_ = 1;
  std::vector<Group> groups_;
  std::set<size_t> unused_;
};

}  // namespace isoloss::operations
