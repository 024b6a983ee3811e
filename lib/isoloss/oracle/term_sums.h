// Sums over the terms of many dot products at once, in vectors of doubles. What
// each sum is follows from its terms alone: a product of two FP32 numbers is
// exact in double, and terms are added one after the other, so that the
// instruction set changes no bit. Squares of errors are not exact: this is
// compiled without contraction, as all of isoloss.
#pragma once

#include <cstddef>

#include "isoloss/base/matrix.h"

namespace isoloss::oracle {

/// Rows of b that lie side by side in a panel: element k of row j at [k, j].
inline constexpr size_t kDotLanes = 16;
/// Rows of a that meet a panel at once.
inline constexpr size_t kDotRows = 4;
/// Terms between two looks at a partial sum (ExactSums::highest).
inline constexpr size_t kPrefixTerms = 8;

using DotTile = double[kDotRows][kDotLanes];

/// Of each dot product, its terms in ascending order.
struct TermSums {
  alignas(64) DotTile exact;    ///< sum of the terms
  alignas(64) DotTile size;     ///< sum of |term|
  alignas(64) DotTile largest;  ///< |term|
  /// Sum of the squares of the roundings of a chain that adds in FP32. Correct
  /// where `size` is at most kMostSize and all terms are multiples of 2^-149:
  /// the chain then neither overflows nor rounds a subnormal number.
  alignas(64) DotTile squares;
};
inline constexpr double kMostSize = 0x1p126;

struct ExactSums {
  alignas(64) DotTile exact;
  /// Largest magnitude of the partial sums of a multiple of kPrefixTerms terms
  /// and of all.
  alignas(64) DotTile highest;
};

/// kDotRows rows of a, each panel.rows() long, with each row of a panel.
/// Shapes   panel [depth, kDotLanes]; scratch: room for kDotRows * depth
///          numbers.
void SumTerms(const float* const* a, MatrixView<const float> panel,
              double* scratch, TermSums& sums);
void SumExactly(const float* const* a, MatrixView<const float> panel,
                double* scratch, ExactSums& sums);
/// Row j of a panel with row j of another. Sets the first row of `sums` alone.
void SumPairs(MatrixView<const float> a, MatrixView<const float> b,
              TermSums& sums);

/// What the elements of a row tell of the terms of any dot product with it.
struct RowFacts {
  double lowest_bit;  ///< all are multiples of it; infinite for 0, 0 for NaN
  double largest;     ///< magnitude
  double norm;        ///< at least the root of the sum of squares
  double block_norm;  ///< as norm, of the largest run of kPrefixTerms
};
RowFacts FactsOf(const float* row, size_t depth);

/// The same of the rows of a panel.
struct LaneFacts {
  alignas(64) double lowest_bit[kDotLanes];
  alignas(64) double largest[kDotLanes];
  alignas(64) double norm[kDotLanes];
  alignas(64) double block_norm[kDotLanes];
};

/// Bit j of the results tells of lane j of one row of ExactSums what holds
/// whatever Estimate::bound and Estimate::noise of the dot product are, with
/// some room to spare. It is not set where the sum is next to overflow or so
/// small that FP32 or BF16 may be subnormal, unless all terms are 0.
///
/// RoundsSurely   nothing within the bound rounds to another BF16 number than
///                want[j], which is the sum rounded to nearest, ties to even.
/// CannotFlip     values[j] is that number, and no boundary of its interval is
///                less than 8 times the noise from the sum.
unsigned RoundsSurely(const double* exact, const RowFacts& a,
                      const LaneFacts& b, size_t depth, double* want);
unsigned CannotFlip(const double* exact, const double* highest,
                    const RowFacts& a, const LaneFacts& b, size_t depth,
                    const float* values);

}  // namespace isoloss::oracle
