// Computes statistics of runs of FP32 words and of their MX blocks. A probe
// logs them of a tensor, in parts that no thread divides.
//
// scalar/statistics.h repeats each function as the definition.
//
// Finite    elements that are NaN or infinite are counted and left out of
//           everything else.
// Exact     bits depend on the arguments only, not on the instruction set. A
//           sum runs in 16 lanes, element i in lane i mod 16, which are folded
//           8, 4, 2, 1 apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::kernels {

/// A compensated sum adds FP64 terms. The loss of each addition is exactly
/// known (Knuth's TwoSum) and summed in `low`, plainly. So high + low is within
/// n^2 2^-106 times the sum of n magnitudes.
struct CompensatedSum {
  double high = 0;
  double low = 0;
};

/// Moments describe a run of elements.
struct Moments {
  CompensatedSum sum;
  CompensatedSum squares;
  double magnitudes = 0;  ///< sum of them
  int64_t zeros = 0;
  int64_t nonfinite = 0;
  /// They are +inf and -inf if no element is finite; zero is +0.
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  /// This is the smallest magnitude that is not zero, and +inf if there is
  /// none.
  float smallest = std::numeric_limits<float>::infinity();
};

/// Computes the moments of a run of at most 2^20 elements.
Moments MomentsOf(std::span<const float> run);

/// These sums compare elements x with their quantised values q, over the pairs
/// that are finite. The terms are exact except those of `errors`, in which only
/// the difference is exact.
struct QuantizationErrors {
  double errors = 0;       ///< sum of (x - q)^2
  double products = 0;     ///< sum of x q
  double quantized = 0;    ///< sum of q^2
  double squares = 0;      ///< sum of x^2
  int64_t pairs = 0;       ///< finite ones
  int64_t underflows = 0;  ///< x is not zero, q is
};

/// Compares a run with its quantised values.
/// Shapes   equally long, at most 2^20.
QuantizationErrors ErrorsOf(std::span<const float> run,
                            std::span<const float> quantized);

/// A tally counts over MX blocks.
struct BlockTally {
  /// The range of a block is its largest magnitude over its smallest that is
  /// not zero. This is the largest range, as FP64: 1 for a block of zeros, 0 if
  /// there is no block.
  double range = 0;

  // The following counts are of quantised blocks only.
  /// Counts full blocks by the place of their largest magnitude (the first of
  /// equals). Blocks of zeros have no place.
  std::array<int64_t, formats::kMxBlockSize> places{};
  /// Counts blocks by their E8M0 byte.
  std::array<int64_t, 256> bytes{};
  /// Counts elements that exceed largest element value * 2^(byte - 127).
  int64_t saturated = 0;
};

/// Adds the blocks of 32 along a run, the last of which may be short. A null
/// `spec` means that they are not quantised.
void TallyBlocksAlong(std::span<const float> run,
                      const formats::Quantization* spec, BlockTally& tally);

/// Adds the blocks down the columns of `block`, one for each column.
/// Shapes   block [1 … 32, C].
void TallyBlocksDown(MatrixView<const float> block,
                     const formats::Quantization* spec, BlockTally& tally);

/// Quantises and dequantises each column of `block` as one MX block.
/// Shapes   block, out [1 … 32, C].
void QuantizeDequantizeDown(MatrixView<const float> block,
                            const formats::Quantization& spec,
                            MatrixView<float> out);

}  // namespace isoloss::kernels
