// Quantises the tensors of an operand as products do, for operands that no
// packed kernel takes.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {

enum class Direction { kRowwise, kColumnwise };

/// Returns the quantisation of one direction; null if it is not quantised.
const formats::Quantization* QuantizationOf(const model::Tensor& tensor,
                                            Direction direction);

/// Returns whether it is a quantised operand, and not one of MX blocks of the
/// tensor's own values. Down columns the results of `rowwise` may be
/// quantised.
bool IsGeneral(const model::Tensor& tensor, Direction direction);

/// The quantisations of one tensor of an operand take these states.
struct TensorStates {
  formats::TensorState rowwise = {};
  formats::TensorState columnwise = {};

  const formats::TensorState& Of(Direction direction) const {
    return direction == Direction::kRowwise ? rowwise : columnwise;
  }
};

TensorStates StatesOf(const model::Tensor& tensor, const RowRun& run);

/// Holds one tensor of an operand. Its columns are the contraction axis, so
/// columns of the announced values are rows here if they are quantised down
/// columns.
struct OperandTensor {
  Matrix<float> elements;  ///< what is quantised: after a transform
  /// These are the announced values, likewise; empty if they equal `elements`.
  Matrix<float> announced;
  formats::QuantizedTensor quantized;
};

/// `rows` are those of the tensor. Of `of` all but its values counts.
OperandTensor QuantizeTensor(MatrixView<const float> rows,
                             const model::Tensor& of, Direction direction,
                             const TensorStates& states);

}  // namespace isoloss::probes
