// What a description of a quantisation means, element by element: the
// definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/formats/scaling.h"

namespace isoloss::formats {

/// What quantising one tensor needs besides its values.
struct TensorState {
  /// Delayed scaling: the largest magnitude of the steps that it looks back to.
  std::optional<float> history = {};
  /// Of stochastic rounding: a seed, and a number that no other tensor has.
  uint64_t seed = 0;
  uint64_t stream = 0;
  /// Of a random transform; the same for both operands of a product.
  uint64_t transform_key = 0;
};

/// The random bits of element (row, col): those of the 16-bit word col % 8 of
/// the Philox block (row << 32 | col / 8) of (seed, stream), the upper `count`
/// of them.
RandomBits RandomBitsOf(const TensorState& state, size_t row, size_t col,
                        int count);

/// The scale of a cell whose largest magnitude has the bits `amax`, finite or
/// not.
Scale ScaleOfCell(const Quantization& quantization, uint32_t amax,
                  const TensorAmax& tensor);

/// The code of one element under its cell's scale.
uint32_t CodeOf(float value, const Scale& scale,
                const Quantization& quantization, RandomBits random);

/// Bits of the largest magnitude: finite < infinity < NaN. `skip_nan`: of what
/// is no NaN.
uint32_t AmaxBits(MatrixView<const float> values, bool skip_nan);

/// The cells of a tensor of that extent, none larger than it.
Cell CellIn(const Quantization& quantization, size_t rows, size_t cols);

/// A quantised tensor, as a GEMM operand: columns are the contraction axis.
struct QuantizedTensor {
  Matrix<uint32_t> codes;  ///< [rows, cols]
  /// What codes of each cell stand for, times `tensor_scale`:
  /// [ceil(rows / cell rows), ceil(cols / cell cols)].
  Matrix<float> scales;
  /// The same as stored, of E8M0 and E4M3; else empty.
  Matrix<uint8_t> scale_bytes;
  float tensor_scale = 1;
};

/// The elements that are quantised, which is what a transform makes of the
/// values: step 1 below.
Matrix<float> Transformed(MatrixView<const float> values,
                          const Quantization& quantization,
                          const TensorState& state = {});

/// Quantises one tensor: the values that share everything that a scale may
/// depend on. Of a sequence's tokens, of an expert's dispatch unit or of a
/// weight matrix; a GEMM cuts its operands into them.
///
///  1. Runs of the transform's length along each row are transformed; the last
///     one is filled up with zeros, which makes it as long as the others.
///  2. For each cell, amax is its largest magnitude, and its scale follows.
///  3. Codes are those of x * scale.encode, rounded as the description says;
///     beyond the largest element they saturate. Without a scale, a format with
///     infinities has them there.
///
/// Shapes   values [rows, cols]; result.codes [rows, cols], or cols rounded up
///          to whole runs of the transform. Cells begin at the first row and
///          column; the last ones may be smaller.
/// Special  kBlockNan: a cell with a NaN or an infinity has the scale NaN and
///          the format's NaN code, or zero where there is none. kTe: NaN is
///          left out of amax; E8M0 and E4M3 scales are the largest ones if an
///          infinity is in the cell, and 1 of the other formats; a NaN stays a
///          NaN with its sign, or becomes the largest value where there is
///          none.
/// Exact    bits depend on the arguments only. Must not run with subnormals
///          flushed.
/// Source   docs/numerics.md, sections 2 to 7 and 13.
QuantizedTensor Quantize(MatrixView<const float> values,
                         const Quantization& quantization,
                         const TensorState& state = {});

/// Extents of the cells, the last of which may be smaller.
Cell CellOf(const QuantizedTensor& tensor, const Quantization& quantization);

/// The values of the codes alone.
Matrix<float> CodeValues(const QuantizedTensor& tensor,
                         const Quantization& quantization);

/// code value * scale of its cell, without the scale of the tensor: one FP32
/// multiplication. Exact for scales that are powers of two, and for E2M1 under
/// E4M3 scales.
Matrix<float> CellValues(const QuantizedTensor& tensor,
                         const Quantization& quantization);

/// CellValues times the scale of the tensor: what a tensor became.
Matrix<float> Dequantize(const QuantizedTensor& tensor,
                         const Quantization& quantization);

}  // namespace isoloss::formats
