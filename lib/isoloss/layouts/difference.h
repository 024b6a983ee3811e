// Measures how far two tensors are apart, and in which rows and shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"

namespace isoloss::layouts {

/// Rows that `skipped` marks do not count.
struct Difference {
  int64_t elements = 0;
  int64_t different = 0;  ///< have other bits; zeros of either sign are equal
  double relative = 0.0;  ///< ||b - a|| / ||a||, infinite if a is zero
  /// The largest ||b - a|| / ||a|| of one row. A row counts as at least a tenth
  /// of the mean length, since short rows are differences of long ones.
  double largest_row = 0.0;
  bool is_finite = true;
};

/// Both have the same extent.
Difference Differ(MatrixView<const float> a, MatrixView<const float> b,
                  const std::vector<bool>& skipped = {});

/// Returns the root of the sum of squares.
double NormOf(MatrixView<const float> values);

/// Rows and columns in which a tensor is wrong.
struct Region {
  std::vector<size_t> rows = {};
  size_t first_column = 0;
  size_t columns = 0;
};

Region WholeOf(MatrixView<const float> matrix);

/// Returns the rows that are further off than `bound`, and the first run of
/// blocks of columns that are, among `shards` blocks of equal width.
Region WrongRegion(MatrixView<const float> a, MatrixView<const float> b,
                   double bound, size_t shards);

/// A fit of b by a number times a.
struct FactorFit {
  double factor = 0.0;
  double rest = 1.0;  ///< ||b - factor a|| / ||b||
};
FactorFit FitFactor(MatrixView<const float> a, MatrixView<const float> b,
                    const Region& region);

/// Returns how much of what a factor of each row leaves of ||b - a||^2 is
/// explained by a factor of each row and each of `shards` blocks of columns.
/// Rounding errors give about shards / columns.
double ShareOfShardFactors(MatrixView<const float> a, MatrixView<const float> b,
                           size_t shards);

}  // namespace isoloss::layouts
