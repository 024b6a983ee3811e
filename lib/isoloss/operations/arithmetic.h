// Says how a processor added up the products of a recorded result.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/kernels/accumulator.h"

namespace isoloss::operations {

/// A result of few elements may be computed in parts of the steps, as cuBLAS
/// does: each part has sums of its own.
struct SplitK {
  /// Says how FP32 sums of parts are added: one after the other; or those of
  /// neighbours first; or those first that are half of all parts apart.
  enum class Order { kAscending, kDescending, kNeighbours, kHalves };

  /// A part has this number of steps, but the last one may have fewer; 0 means
  /// one part.
  size_t steps = 0;
  /// So many parts, the first ones, have `tile` steps more.
  size_t longer = 0;
  size_t tile = 0;
  Order order = Order::kAscending;
  kernels::Rounding rounding = kernels::Rounding::kFp32;  ///< of each part

  /// Returns where parts end, ascending.
  std::vector<size_t> Ends(size_t depth) const;
  /// Adds the sums of all parts.
  float Sum(std::vector<float> parts) const;

  bool operator==(const SplitK&) const = default;
};

/// Returns the ways in which the steps may be split into at most 256 parts, all
/// of one order.
std::vector<SplitK> SplitsOf(size_t depth);

/// Says how FP32 scales multiply sums. Those of whole rows may multiply results
/// instead of sums of pieces.
enum class ResultScale {
  /// Their product multiplies sums of pieces, fused with the addition, as
  /// recipes define it.
  kNone,
  kPieceLeft,       ///< a piece is multiplied by the left one before
  kPieceApart,      ///< as kNone, but the addition is not fused
  kPieceLeftApart,  ///< as kPieceLeft, but the addition is not fused
  kProduct,         ///< the product of both scales, rounded before
  kLeft,            ///< the scale of the left side, then that of the right one
  kRight,
};

/// Without an accumulator, sums are FP32 in any order, and nothing else counts.
struct Arithmetic {
  kernels::Accumulation accumulation = {};
  ResultScale scale = ResultScale::kNone;
  SplitK split = {};

  bool scales_pieces() const { return scale < ResultScale::kProduct; }
  bool has_bits() const { return accumulation.accumulator != nullptr; }
  /// Sums lose bits that FP32 has.
  bool is_coarse() const {
    constexpr int kFp32Bits = 23;
    return has_bits() && accumulation.accumulator->fraction_bits < kFp32Bits;
  }
  /// Returns "Hopper FP8 tensor cores, promoted every 128 steps".
  std::string Text() const;

  bool operator==(const Arithmetic&) const = default;
};

}  // namespace isoloss::operations
