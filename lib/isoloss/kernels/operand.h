// One side of a product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// Along which side of the stored matrix the contraction index k runs.
enum class Contraction {
  kColumns,  ///< values [extent, k]: row i holds operand row i
  kRows,     ///< values [k, extent]: column i holds operand row i
};

/// Of the tensors that an operand consists of: sequences, dispatch units.
struct OperandState {
  /// That of the tensors but for `stream`, from which theirs are made.
  formats::TensorState common = {};
  /// Number of the first one in the whole batch.
  size_t first_tensor = 0;

  formats::TensorState Of(size_t tensor) const;
};

struct Operand {
  MatrixView<const float> values;
  Contraction contraction = Contraction::kColumns;
  /// Quantise before multiplying; null takes the values as they are. MX blocks
  /// lie along k.
  const formats::Quantization* quantization = nullptr;
  /// Ends of the tensors among the stored rows, ascending, the last one = rows:
  /// no scale depends on two of them. Empty: one tensor. If k runs along rows,
  /// these are the segments of the product.
  std::span<const size_t> tensor_ends = {};
  /// Must live as long as the operand; null: all zero.
  const OperandState* state = nullptr;
  /// What was done to it before, along the stored columns: the operand is what
  /// this makes of each tensor. Null: nothing.
  const formats::Quantization* before = nullptr;
  const OperandState* state_before = nullptr;
  /// Of the values, before anything else is done to them: products read FP32
  /// master weights as the BF16 values that they compute with.
  Rounding rounding = Rounding::kFp32;

  /// Element `step` of operand row `row`, rounded but not quantised.
  float At(size_t row, size_t step) const {
    return Rounded(contraction == Contraction::kColumns ? values(row, step)
                                                        : values(step, row),
                   rounding);
  }
  /// Number of operand rows (output rows for a, output columns for b).
  size_t extent() const {
    return contraction == Contraction::kColumns ? values.rows() : values.cols();
  }
  /// Length of the contraction axis.
  size_t depth() const {
    return contraction == Contraction::kColumns ? values.cols() : values.rows();
  }
  /// Packed kernels quantise it on the way; others are prepared before.
  bool is_packable() const {
    return before == nullptr &&
           (quantization == nullptr || quantization->is_mx());
  }
};

}  // namespace isoloss::kernels
