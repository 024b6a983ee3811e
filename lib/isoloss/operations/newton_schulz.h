// Computes Muon's iteration as trainers do, with their roundings, and how far
// other orders of its sums may lead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::operations {

/// These numbers are a, b and c of X' = a X + (b A + c A^2) X with A = X X^T.
using NewtonSchulzStep = std::array<double, 3>;

/// Says where a trainer rounds to the type of the iteration.
struct NewtonSchulzWay {
  enum class Sums {
    kFused,     ///< a product and what is added to it, once (torch.addmm)
    kAddends,   ///< also each addend and factor before (compiled)
    kProducts,  ///< also each product, but sums in FP32 (compiled)
    kEach,      ///< the result of each operation (eager)
  };
  enum class Norm {
    kRounded,    ///< that of the rounded matrix, rounded
    kOfRounded,  ///< that of the rounded matrix, in FP32
    kOfFp32,     ///< that of the FP32 matrix, which the norm divides
  };
  oracle::Grid grid = oracle::Grid::kBf16;
  Sums sums = Sums::kFused;
  Norm norm = Norm::kRounded;
  /// The first a X is computed before X is rounded.
  bool keeps_first = false;
  /// Each rounding may be to either neighbour.
  bool is_unknown = false;

  bool operator==(const NewtonSchulzWay&) const = default;
};

/// A matrix is row-major, and its iteration has these numbers.
struct NewtonSchulz {
  std::vector<NewtonSchulzStep> steps = {};
  double eps = 1e-7;
  NewtonSchulzWay way = {};
  /// The matrix is cut into so many parts, each iterated for itself.
  size_t parts = 1;
  bool cuts_columns = false;

  bool operator==(const NewtonSchulz&) const = default;
};

/// Returns the iteration's result. FP32 sums are in one order if `draw` is 0;
/// else each is off by a random error that depends on `draw` alone, as if it
/// had another order.
///
/// The error of one sum is normal with the standard deviation
/// 2 u (sqrt(K) |sum| + |row of left| |column of right|), u being 2^-24.
/// A chain of K roundings of partial sums, each uniform within half a unit, has
/// u sqrt(K / 3) times their mean size. Partial sums of terms with one sign are
/// smaller than the sum; those of random signs are smaller than the product of
/// both lengths over sqrt(K). The factor 2 is for adders that cut off.
///
/// So few sums may lie next to a boundary of a coarse grid that no draw shows
/// any. Errors are therefore at least so large that four roundings of each
/// product go the other way on average. In an unknown way they are half a
/// spacing, as those of three roundings.
Matrix<float> Iterated(const NewtonSchulz& rule, MatrixView<const float> matrix,
                       uint64_t draw);

/// Knows the result and how much it varies.
struct Direction {
  Matrix<float> value;
  /// The square of an element's difference between two orders of sums is on
  /// average rows[r] * columns[c].
  std::vector<double> rows;
  std::vector<double> columns;
  // Products of such a difference with the value itself, and with the probe,
  // have these root mean squares.
  double along_value = 0;
  double along_probe = 0;
  /// No element differs more between the orders that were tried.
  double largest = 0;

  double Noise(size_t row, size_t column) const;
};
/// Makes the iteration in the fixed order and in `draws` others.
Direction DirectionOf(const NewtonSchulz& rule, MatrixView<const float> matrix,
                      MatrixView<const float> probe, size_t draws);

}  // namespace isoloss::operations
