// Quantises operands as wholes, fast and bit-equal to PrepareTensorScalar.
#pragma once

#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/prepared_operand.h"

namespace isoloss::kernels {

/// Prepares one tensor of an operand, after Resize made room for it.
void PrepareTensor(const Operand& operand, const Pieces& pieces,
                   const TensorCut& cut, FactorExponents exponents,
                   PreparedOperand& prepared);

/// Calls Resize and prepares all tensors, on the calling thread.
void Prepare(const Operand& operand, const Pieces& pieces,
             FactorExponents exponents, PreparedOperand& prepared);

/// Columns are the contraction axis and fill whole runs of a transform.
struct TensorToQuantize {
  MatrixView<float> tensor;
  const formats::Quantization* quantization;
  formats::TensorState state = {};
};

/// Quantises and dequantises tensors in place, as formats::Dequantize does. No
/// two tensors have an element in common.
/// Exact    bits depend on the tensors only.
void QuantizeTensors(std::span<const TensorToQuantize> tensors,
                     Executor& executor);

/// Quantises a tensor in place, as formats::Quantize: each element becomes the
/// value of its code, times its cell's scale unless scales multiply sums.
/// Columns are the contraction axis and fill whole runs of a transform.
/// Shapes   scales [cells], written; MX blocks, whose scales are in the
///          values, leave them alone.
/// Returns  the scale of the tensor.
float QuantizeInPlace(MatrixView<float> tensor,
                      const formats::Quantization& quantization,
                      const formats::TensorState& state, Matrix<float>& scales);

}  // namespace isoloss::kernels
