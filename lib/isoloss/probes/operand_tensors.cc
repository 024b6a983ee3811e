#include "isoloss/probes/operand_tensors.h"

namespace isoloss::probes {
namespace {

/// The values quantised down columns are those that were made along rows.
bool IsAgain(const model::Tensor& tensor, Direction direction) {
  return direction == Direction::kColumnwise && tensor.columnwise_again &&
         tensor.rowwise != nullptr;
}

OperandTensor Made(MatrixView<const float> values,
                   const formats::Quantization& quantization,
                   const formats::TensorState& state) {
  return {formats::Transformed(values, quantization, state),
          {},
          formats::Quantize(values, quantization, state)};
}

}  // namespace

const formats::Quantization* QuantizationOf(const model::Tensor& tensor,
                                            Direction direction) {
  return direction == Direction::kRowwise ? tensor.rowwise : tensor.columnwise;
}

bool IsGeneral(const model::Tensor& tensor, Direction direction) {
  const formats::Quantization* quantization = QuantizationOf(tensor, direction);
  return quantization != nullptr &&
         (!quantization->is_mx() || IsAgain(tensor, direction));
}

TensorStates StatesOf(const model::Tensor& tensor, const RowRun& run) {
  TensorStates states;
  if (!tensor.rowwise_states.empty()) {
    states.rowwise = tensor.rowwise_states[run.group].Of(run.segment);
  }
  if (!tensor.columnwise_states.empty()) {
    states.columnwise = tensor.columnwise_states[run.group].Of(run.segment);
  }
  return states;
}

OperandTensor QuantizeTensor(MatrixView<const float> rows,
                             const model::Tensor& of, Direction direction,
                             const TensorStates& states) {
  const formats::Quantization& quantization = *QuantizationOf(of, direction);
  const formats::TensorState& state = states.Of(direction);
  if (direction == Direction::kRowwise) {
    return Made(rows, quantization, state);
  }
  const Matrix<float> columns = Transposed(rows);
  if (!IsAgain(of, direction)) {
    return Made(columns.view(), quantization, state);
  }
  const Matrix<float> before = formats::Dequantize(
      formats::Quantize(rows, *of.rowwise, states.rowwise), *of.rowwise);
  // A transform along rows may have made them longer.
  const Matrix<float> again = Transposed(before.view().Cols(0, rows.cols()));
  OperandTensor result = Made(again.view(), quantization, state);
  result.announced = formats::Transformed(columns.view(), quantization, state);
  return result;
}

}  // namespace isoloss::probes
