// Describes one side of a product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// The contraction index k runs along this side of the stored matrix.
enum class Contraction {
  kColumns,  ///< values [extent, k]: row i holds operand row i
  kRows,     ///< values [k, extent]: column i holds operand row i
};

/// An operand consists of tensors (sequences, dispatch units), and this is
/// their state.
struct OperandState {
  /// All tensors have this state except for `stream`, from which their own
  /// streams are made.
  formats::TensorState common = {};
  /// The first tensor of the operand has this number in the whole batch.
  size_t first_tensor = 0;

  formats::TensorState Of(size_t tensor) const;
};

struct Operand {
  MatrixView<const float> values;
  Contraction contraction = Contraction::kColumns;
  /// This quantises the operand before the product; null takes the values as
  /// they are. MX blocks lie along k.
  const formats::Quantization* quantization = nullptr;
  /// Tensors end here among the stored rows, ascending, the last one at rows:
  /// no scale depends on two tensors. Empty means one tensor. If k runs along
  /// rows, these are the segments of the product.
  std::span<const size_t> tensor_ends = {};
  /// The state must live as long as the operand; null means all zero.
  const OperandState* state = nullptr;
  /// The operand is the result of this quantisation of each tensor, which came
  /// before, along the stored columns. Null means that there was none.
  const formats::Quantization* before = nullptr;
  const OperandState* state_before = nullptr;
  /// Before anything else the values are rounded to this type: products read
  /// FP32 master weights as the BF16 values that they compute with.
  Rounding rounding = Rounding::kFp32;

  /// Returns element `step` of operand row `row`, rounded but not quantised.
  float At(size_t row, size_t step) const {
    return Rounded(contraction == Contraction::kColumns ? values(row, step)
                                                        : values(step, row),
                   rounding);
  }
  /// Returns the number of operand rows (output rows for a, output columns for
  /// b).
  size_t extent() const {
    return contraction == Contraction::kColumns ? values.rows() : values.cols();
  }
  /// Returns the length of the contraction axis.
  size_t depth() const {
    return contraction == Contraction::kColumns ? values.cols() : values.rows();
  }
  /// Packed kernels quantise such an operand as they pack it; the rest are
  /// prepared before.
  bool is_packable() const {
    return before == nullptr &&
           (quantization == nullptr || quantization->is_mx());
  }
};

}  // namespace isoloss::kernels
