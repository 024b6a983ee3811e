// Adds products of uncertain factors and exact values, in vectors of doubles.
// Each sum is computed term after term, as if it were alone; vectors change no
// bit.
#pragma once

#include <cstddef>

#include "isoloss/base/matrix.h"
#include "isoloss/oracle/uncertain.h"

namespace isoloss::oracle {

/// The number of columns of `values` is a multiple of this.
inline constexpr size_t kFactorLanes = 8;

/// Keeps the sums of one row, one per column and figure.
struct FactorSums {
  explicit FactorSums(size_t columns) : sums(kFigures, columns) {}

  enum Figure : size_t {
    kExact,     ///< sum of factor * value
    kSize,      ///< sum of |factor * value|
    kInput,     ///< sum of bound * |value|: the factors' errors
    kVariance,  ///< of the factors and of an FP32 chain's roundings
    kFigures
  };
  Matrix<double> sums;  ///< [kFigures, columns]
  size_t terms = 0;
};

/// Adds factors[k * stride] * values(k, c) for ascending k to each column c.
/// Shapes   values [terms, columns of sums], columns of which kFactorLanes is a
///          divisor.
void AddFactors(const Uncertain* factors, size_t stride,
                MatrixView<const double> values, FactorSums& sums);

}  // namespace isoloss::oracle
