// Quantise-dequantise down columns with the parts that GEMMs pack with.
#pragma once

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::kernels {

/// out[j, i] = element (i, j) of source, quantised and dequantised in blocks of
/// 32 down each column.
/// Shapes   source [R, C]; out [C, R], no memory of source.
/// Errors   ShapeError if shapes do not fit.
/// Exact    bits depend on the arguments only.
void QuantizeDequantizeTransposed(MatrixView<const float> source,
                                  const formats::Quantization& spec,
                                  MatrixView<float> out, Executor& executor);

}  // namespace isoloss::kernels
