// What products make of the tensors that an operand consists of, for operands
// that no packed kernel takes.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {

enum class Direction { kRowwise, kColumnwise };

/// Of one direction; null: not quantised.
const formats::Quantization* QuantizationOf(const model::Tensor& tensor,
                                            Direction direction);

/// Is it a quantised operand, and not one of MX blocks of the tensor's own
/// values? Down columns what `rowwise` made of them may be quantised.
bool IsGeneral(const model::Tensor& tensor, Direction direction);

/// What the quantisations of one tensor of an operand draw from.
struct TensorStates {
  formats::TensorState rowwise = {};
  formats::TensorState columnwise = {};

  const formats::TensorState& Of(Direction direction) const {
    return direction == Direction::kRowwise ? rowwise : columnwise;
  }
};

TensorStates StatesOf(const model::Tensor& tensor, const RowRun& run);

/// One tensor of an operand: columns are the contraction axis, so columns of
/// the announced values are rows if they are quantised down columns.
struct OperandTensor {
  Matrix<float> elements;  ///< what is quantised: after a transform
  /// The announced ones, likewise; empty if these are `elements`.
  Matrix<float> announced;
  formats::QuantizedTensor quantized;
};

/// `rows`: those of the tensor, all of `of` that matters but its values.
OperandTensor QuantizeTensor(MatrixView<const float> rows,
                             const model::Tensor& of, Direction direction,
                             const TensorStates& states);

}  // namespace isoloss::probes
