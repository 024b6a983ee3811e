// Multiplies quantised operands. It gives the exact result and how far FP32 may
// be from it, or the bits if an accumulator defines them.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>

#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/sample.h"
#include "isoloss/oracle/scalar_operand.h"
#include "isoloss/oracle/tensor_core.h"

namespace isoloss::oracle {

/// Computes the sums of a product before their last rounding.
class ScalarProduct {
 public:
  /// Errors   those of PiecesOf and ScalarQuantize; ConfigError for an
  ///          accumulator that the oracle does not know.
  ScalarProduct(const ScalarOperand& a, const ScalarOperand& b,
                const precision::GemmPrecision& precision,
                std::span<const size_t> segment_ends = {});

  using Use = std::function<void(size_t i, size_t j, const Estimate& sum)>;

  size_t rows() const { return a_.values.rows(); }
  size_t cols() const { return b_.values.rows(); }
  /// If true, estimates are the sums themselves, to the bit.
  bool has_bits() const { return core_ != nullptr; }

  /// Calls use(i, j, estimate) for each sum.
  ///
  /// Bounds   as Dot, for any order of all steps, if there are neither scales
  ///          of sums nor promotion nor accumulators. Else for any order within
  ///          a piece, and for any order of pieces if outer sums are FP32.
  ///          A piece has the chain's sum s, the chain's bound e and the
  ///          rounded product f of the factors. It contributes |f| e, and
  ///            d = gamma_1 (|f s| + |f| e)
  ///          for the product with f. Two factors add d once more, in either
  ///          order. Let M be the sum of |f s| + |f| e + d over P pieces. No
  ///          partial sum is larger than M (1 + gamma_P). At most P additions
  ///          are rounded, those of segments included. They contribute
  ///            gamma_P M.
  ///          BF16 outer sums have the order of pieces. Each sum is rounded to
  ///          FP32 and then to BF16 (2^-8 of itself at most). This changes it
  ///          only if the error reaches a boundary (RoundedOnTheWay).
  ///          Each operation may be off by another 2^-149.
  void ForEach(const Use& use) const;
  /// Does the same, but if rounding an estimate to BF16 can give only one
  /// number, the estimate may be that number without any error.
  void ForEachRounded(const Use& use) const;
  /// Does what ForEach does for sums that are rounded to BF16, but leaves out
  /// sums that can't flip. Their element of `values` is the rounded sum, or
  /// that added to `addend` and rounded again, whatever FP32 arithmetic does,
  /// in this run and in any other. Returns how many are left out.
  /// Shapes   values [rows(), cols()]; addend the same, or empty.
  size_t ForEachUncertain(MatrixView<const float> values,
                          MatrixView<const float> addend, const Use& use) const;
  /// Does what ForEach does for chosen sums, whose rows count from `first` on.
  void ForEachOf(std::span<const Place> places, size_t first,
                 const Use& use) const;

 private:
  class PieceSum;

  bool IsPlain() const;
  void AddPiece(size_t p, size_t i, size_t j, const Estimate& dot,
                PieceSum& sum) const;
  void ForEachPlain(const Use& use) const;
  void ForEachScaled(const Use& use) const;
  float Bits(size_t i, size_t j) const;

  const precision::GemmPrecision& precision_;
  ScalarPieces pieces_;
  const TensorCore* core_;
  PreparedSide a_;
  PreparedSide b_;
};

}  // namespace isoloss::oracle
