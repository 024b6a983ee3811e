// Quantises one tensor by a description that is stated a second time. Nothing
// here calls formats::Quantize, Encode or a scaling, rounding or transform.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/scalar_cast.h"
#include "isoloss/oracle/scalar_scale.h"

namespace isoloss::oracle {

/// The columns of a quantised tensor are the contraction axis.
struct ScalarTensor {
  Matrix<float> elements;  ///< input of the cast, after a transform
  /// Codes as numbers, under a scale of 1, [rows, cols]. cols are whole runs of
  /// a transform, as in elements.
  Matrix<float> codes;
  std::vector<ScalarScale> scales;  ///< one per cell, row by row
  size_t cell_rows = 1;
  size_t cell_cols = 1;
  float tensor_scale = 1.0f;

  const ScalarScale& ScaleAt(size_t row, size_t col) const {
    const size_t across = (codes.cols() + cell_cols - 1) / cell_cols;
    return scales[row / cell_rows * across + col / cell_cols];
  }
  /// Calls use(row, first, end, scale) for the columns of each row in each
  /// cell.
  template <typename Use>
  void ForEachRun(const Use& use) const {
    for (size_t row = 0; row < codes.rows(); ++row) {
      for (size_t first = 0; first < codes.cols(); first += cell_cols) {
        use(row, first, std::min(first + cell_cols, codes.cols()),
            ScaleAt(row, first));
      }
    }
  }
};

/// `state` is only data; this file states which bits an element gets.
/// Errors   ConfigError for a scaling, rounding or transform that the oracle
///          does not know.
/// Source   formats/quantize.h, formats/hadamard.h; docs/numerics.md, sections
///          2 to 7.
ScalarTensor ScalarQuantize(MatrixView<const float> values,
                            const formats::Quantization& quantization,
                            const formats::TensorState& state = {});

/// Returns the dequantised tensor without the columns that a transform added.
Matrix<float> ScalarDequantize(const ScalarTensor& tensor, size_t cols);

/// Computes the codes of elements under the scales of their cells. It keeps a
/// reference to the description.
class ScalarCoder {
 public:
  /// Prepares the cast to the element format.
  /// Errors   as ElementCast.
  explicit ScalarCoder(const formats::Quantization& quantization);

  /// Returns the code as a number; `random` comes from ScalarRandom.
  float Code(float value, const ScalarScale& scale, uint32_t random) const;

  /// Sets the codes of finite numbers under a scale that is no NaN. They need
  /// no random bits.
  void Codes(const float* values, size_t count, const ScalarScale& scale,
             float* codes) const;

 private:
  const formats::Quantization& quantization_;
  ElementCast cast_;
};

/// Returns the random bits of an element. Each element has 16 bits of the
/// tensor's stream. Eight elements of a row have a Philox block, from the low
/// half of its first word on. Roundings that need fewer bits take the upper
/// ones.
uint32_t ScalarRandom(const formats::TensorState& state, size_t row, size_t col,
                      int bits);

/// Returns the state of tensor `number` of an operand outside the GEMM sites,
/// such as "layers.0.attention.inner_attention.scores/fprop/left".
formats::TensorState StateOfTensor(uint64_t seed, uint64_t step,
                                   const std::string& operand, size_t number);

/// Returns whether random bits, a history or a key affect the quantisation.
bool NeedsState(const formats::Quantization& quantization);

}  // namespace isoloss::oracle
