// Quantises and dequantises whole matrices in MX blocks, bit-equal to
// formats::QuantizeDequantizeBlock. A GEMM does the same to its operands; here
// it is an operation of its own.
#pragma once

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::kernels {

/// Quantises and dequantises `source` in blocks of 32 along each row (the last
/// block of a row may be short).
/// Shapes   source, out [R, C]. `out` may be `source`.
/// Errors   ShapeError if shapes differ.
/// Exact    bits depend on the arguments only.
void QuantizeDequantize(MatrixView<const float> source,
                        const formats::Quantization& spec,
                        MatrixView<float> out, Executor& executor);

}  // namespace isoloss::kernels
