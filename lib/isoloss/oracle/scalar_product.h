// Products of quantised operands: what exact arithmetic gives and how far FP32
// may be from it, or the bits where an accumulator defines them.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>

#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/scalar_operand.h"

namespace isoloss::oracle {

/// Sums before their last rounding.
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
  /// Estimates are the sums themselves, to the bit.
  bool has_bits() const { return accumulator_ != nullptr; }

  /// Calls use(i, j, estimate) for each sum.
  ///
  /// Bounds   without scales of sums, promotion and accumulators: as Dot, any
  ///          order of all steps. Else in any order within a piece and, of FP32
  ///          outer sums, of pieces. A piece p with the chain's sum s, the
  ///          chain's bound e and the factors' rounded product f contributes
  ///          |f| e, and
  ///            gamma_1 (|f s| + |f| e)
  ///          for the product with f, and as much again if there are two
  ///          factors, in whatever order they come. With M the sum of
  ///          |f s| + |f| e + that over P pieces, no partial sum is larger than
  ///          M (1 + gamma_P), and at most P additions are rounded, those of
  ///          segments included:
  ///            gamma_P M.
  ///          BF16 outer sums have the order of pieces: each sum is rounded to
  ///          FP32 and then to BF16 (2^-8 of itself at most), which moves it
  ///          only where the error reaches a boundary (RoundedOnTheWay).
  ///          Each operation may be 2^-149 off besides.
  void ForEach(const Use& use) const;
  /// As ForEach, but where rounding an estimate to BF16 can give one number
  /// alone, it may be that number, without any error.
  void ForEachRounded(const Use& use) const;
  /// As ForEach of sums that are rounded to BF16, but without those whose
  /// element of `values` is known to be the sum rounded, whatever FP32 makes of
  /// it: neither now nor in another run can one of them be a flip. Returns how
  /// many are left out.
  /// Shapes   values [rows(), cols()].
  size_t ForEachUncertain(MatrixView<const float> values, const Use& use) const;

 private:
  /// What the oracle knows of an accumulator.
  struct TensorCore {
    const char* name;
    size_t steps;
    int fraction_bits;
    int significand_bits;
  };
  static const TensorCore* CoreOf(const precision::GemmPrecision& precision);

  bool IsPlain() const;
  void ForEachPlain(const Use& use) const;
  void ForEachScaled(const Use& use) const;
  float Bits(size_t i, size_t j) const;
  float PieceBits(size_t i, size_t j, const ScalarPieces::Piece& piece) const;

  const precision::GemmPrecision& precision_;
  ScalarPieces pieces_;
  const TensorCore* accumulator_;
  PreparedSide a_;
  PreparedSide b_;
};

}  // namespace isoloss::oracle
