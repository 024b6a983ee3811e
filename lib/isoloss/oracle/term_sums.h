// Adds the terms of many dot products at once, in vectors of doubles. A sum
// follows from its terms alone. A product of two FP32 numbers is exact in
// double, and terms are added one after another, so the instruction set changes
// no bit. Squares of errors are not exact, so this is compiled without
// contraction, as all of isoloss.
#pragma once

#include <cstddef>

#include "isoloss/base/matrix.h"

namespace isoloss::oracle {

/// A panel has this many rows of b side by side; element k of row j is at [k,
/// j].
inline constexpr size_t kDotLanes = 16;
/// This many rows of a are multiplied by a panel at once.
inline constexpr size_t kDotRows = 4;
/// ExactSums::highest looks at the partial sum after each run of this many
/// terms.
inline constexpr size_t kPrefixTerms = 8;

using DotTile = double[kDotRows][kDotLanes];

/// Each dot product has these sums over its terms in ascending order.
struct TermSums {
  alignas(64) DotTile exact;    ///< sum of the terms
  alignas(64) DotTile size;     ///< sum of |term|
  alignas(64) DotTile largest;  ///< largest |term|
  /// The sum of the squares of the roundings of a chain that adds in FP32. It
  /// is correct if `size` is at most kMostSize and all terms are multiples of
  /// 2^-149. The chain then neither overflows nor rounds a subnormal number.
  alignas(64) DotTile squares;
};
inline constexpr double kMostSize = 0x1p126;

struct ExactSums {
  alignas(64) DotTile exact;
  /// The largest magnitude of the whole sum and of the partial sums that follow
  /// each kPrefixTerms terms.
  alignas(64) DotTile highest;
};

/// Multiply kDotRows rows of a, each panel.rows() long, by each row of a panel.
/// Shapes   panel [depth, kDotLanes]; scratch: room for kDotRows * depth
///          numbers.
void SumTerms(const float* const* a, MatrixView<const float> panel,
              double* scratch, TermSums& sums);
void SumExactly(const float* const* a, MatrixView<const float> panel,
                double* scratch, ExactSums& sums);
/// Multiplies row j of a panel by row j of another one. Sets only the first row
/// of `sums`.
void SumPairs(MatrixView<const float> a, MatrixView<const float> b,
              TermSums& sums);

/// Returns whether all products of two elements are multiples of `unit`. This
/// is a power of two, and they are at most 2^51 times as large.
bool AreMultiples(double unit, const float* a, const float* b, size_t depth);

/// Sets lanes(k, n) = rows[n][k].
/// Shapes   lanes [depth, kDotLanes]
void PackLanes(const float* const* rows, MatrixView<float> lanes);

/// The elements of a row give these limits for the terms of any dot product.
struct RowFacts {
  double lowest_bit;  ///< divides all elements; infinite for 0, 0 for NaN
  double largest;     ///< largest magnitude
  double norm;        ///< at least the root of the sum of squares
  double block_norm;  ///< as norm, of the largest run of kPrefixTerms
};
RowFacts FactsOf(const float* row, size_t depth);

/// These are the same facts for the rows of a panel.
struct LaneFacts {
  alignas(64) double lowest_bit[kDotLanes];
  alignas(64) double largest[kDotLanes];
  alignas(64) double norm[kDotLanes];
  alignas(64) double block_norm[kDotLanes];
};

/// Bit j of the result belongs to lane j of one row of ExactSums. It is set if
/// the statement below follows from the facts alone. They limit the dot
/// product's Estimate::bound and Estimate::noise, with some room to spare. It
/// is not set near overflow or if FP32 or BF16 may be subnormal, unless all
/// terms are 0.
///
/// Let want[j] be the sum rounded to a BF16 number, to nearest, ties to even.
///
/// RoundsSurely   nothing within the bound rounds to another number.
/// CannotFlip     no boundary of its interval is less than 8 times the noise
///                from the sum.
unsigned RoundsSurely(const double* exact, const RowFacts& a,
                      const LaneFacts& b, size_t depth, double* want);
unsigned CannotFlip(const double* exact, const double* highest,
                    const RowFacts& a, const LaneFacts& b, size_t depth,
                    double* want);

}  // namespace isoloss::oracle
