// Products whose every bit this machine's processor knows: a device is healthy
// if it gives them. python/isoloss/adders.py has the same operands and digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/accumulator.h"

namespace isoloss::doctor {

/// Describes elements that are normal in a format of few bits.
struct KnownElements {
  int mantissa_bits;
  int lowest_exponent;
  int exponents;  ///< number of them, a power of two
};

struct ProductKind {
  const char* name;
  KnownElements elements;
  kernels::Accumulation accumulation;
};

/// Returns an FP32 chain, and sums of tensor cores.
std::span<const ProductKind> AllProductKinds();

struct ProductShape {
  size_t rows;
  size_t cols;
  size_t depth;

  size_t elements() const { return rows * cols; }
};

/// Describes the rows of an operand: base rows with other signs and powers of
/// two.
struct KnownRow {
  size_t base;
  float factor;
};

/// The result of some base rows, of which it makes larger products. Factors
/// that are powers of two, or -1, commute with every accumulator as long as no
/// sum leaves the normal numbers, and none does.
class KnownProduct {
 public:
  /// Each operand has this number of base rows.
  static constexpr size_t kBaseRows = 256;

  /// Computes the result of the base rows.
  /// `depth` is at most 2^16.
  KnownProduct(const ProductKind& kind, size_t depth, Executor& host);

  /// Arranges base rows anew.
  void Arrange(size_t rows, size_t cols, uint32_t seed);

  /// Returns the operands [rows, depth] and [cols, depth] in the host's memory.
  Matrix<float> Left() const { return OperandOf(left_base_, left_); }
  Matrix<float> Right() const { return OperandOf(right_base_, right_); }

  /// Returns one element of the arranged product, or all.
  float Expected(size_t row, size_t col) const {
    return base_(left_[row].base, right_[col].base) * left_[row].factor *
               right_[col].factor +
           0.0f;  // the sign of zero is positive
  }
  /// Returns kernels::RowDigests of the arranged product.
  std::vector<uint64_t> ExpectedDigests(Executor& host) const;

  /// Returns the digest of the base rows' product: of all elements in order,
  /// the sum of (2 * index + 1) * bits, modulo 2^64.
  uint64_t digest() const;

 private:
  static Matrix<float> OperandOf(const Matrix<float>& base,
                                 std::span<const KnownRow> rows);

  Matrix<float> left_base_;
  Matrix<float> right_base_;
  Matrix<float> base_;
  std::vector<KnownRow> left_;
  std::vector<KnownRow> right_;
};

}  // namespace isoloss::doctor
