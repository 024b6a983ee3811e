// Defines what a description of a quantisation means, element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/formats/scaling.h"

namespace isoloss::formats {

/// Holds what quantising one tensor needs besides its values.
struct TensorState {
  /// Delayed scaling uses this largest magnitude of the earlier steps.
  std::optional<float> history = {};
  /// Stochastic rounding draws from this seed and a stream number that no other
  /// tensor has.
  uint64_t seed = 0;
  uint64_t stream = 0;
  /// A random transform takes its signs from this key, which is the same for
  /// both operands of a product.
  uint64_t transform_key = 0;
};

/// Returns the bits of the largest magnitude: finite < infinity < NaN.
/// `skip_nan` leaves NaNs out.
uint32_t AmaxBits(MatrixView<const float> values, bool skip_nan);

/// Returns the extents of the cells of a tensor of that extent, none larger
/// than it.
Cell CellIn(const Quantization& quantization, size_t rows, size_t cols);

/// Is a quantised tensor, as a GEMM operand: columns are the contraction axis.
struct QuantizedTensor {
  Matrix<uint32_t> codes;  ///< [rows, cols]
  /// A code's value is multiplied by its cell's scale, then by `tensor_scale`.
  /// The shape is [ceil(rows / cell rows), ceil(cols / cell cols)].
  Matrix<float> scales;
  /// E8M0 and E4M3 scales are also kept as they are stored; else this is empty.
  Matrix<uint8_t> scale_bytes;
  float tensor_scale = 1;
};

/// Returns the elements that are quantised, which are the transformed values:
/// step 1 below.
Matrix<float> Transformed(MatrixView<const float> values,
                          const Quantization& quantization,
                          const TensorState& state = {});

/// Quantises one tensor: the values that share everything that a scale may
/// depend on. They belong to a sequence's tokens, to an expert's dispatch unit
/// or to a weight matrix; a GEMM cuts its operands into such tensors.
///
///  1. Runs of the transform's length along each row are transformed; the last
///     one is filled up with zeros to the same length.
///  2. For each cell, amax is its largest magnitude, and its scale follows.
///  3. Codes are those of x * scale.encode, rounded as the description says;
///     beyond the largest element they saturate. Without a scale, they become
///     infinities there if the format has them.
///
/// Shapes   values [rows, cols]; result.codes [rows, cols], or cols rounded up
///          to whole runs of the transform. Cells begin at the first row and
///          column; the last ones may be smaller.
/// Special  kBlockNan: a cell with a NaN or an infinity has the scale NaN and
///          the format's NaN code, or zero if there is none. kTe: NaN is left
///          out of amax. If an infinity is in the cell, an E8M0 or E4M3 scale
///          is the largest one, and a scale of another format is 1. A NaN
///          stays a NaN with its sign, or becomes the largest value if the
///          format has no NaN.
/// Exact    bits depend on the arguments only. Must not run with subnormals
///          flushed.
/// Source   docs/numerics.md, sections 2 to 7 and 13.
QuantizedTensor Quantize(MatrixView<const float> values,
                         const Quantization& quantization,
                         const TensorState& state = {});

/// Returns the extents of the cells, the last of which may be smaller.
Cell CellOf(const QuantizedTensor& tensor, const Quantization& quantization);

/// Returns the values of the codes alone.
Matrix<float> CodeValues(const QuantizedTensor& tensor,
                         const Quantization& quantization);

/// Returns code value * scale of its cell, without the scale of the tensor, by
/// one FP32 multiplication. It is exact for scales that are powers of two, and
/// for E2M1 under E4M3 scales.
Matrix<float> CellValues(const QuantizedTensor& tensor,
                         const Quantization& quantization);

/// Returns CellValues times the scale of the tensor, which are the values after
/// quantisation.
Matrix<float> Dequantize(const QuantizedTensor& tensor,
                         const Quantization& quantization);

}  // namespace isoloss::formats
