// Quantises to MX blocks: 32 elements along the contraction axis that share one
// power-of-two scale (an E8M0 byte).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/e8m0.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/quantization.h"

namespace isoloss::formats {

inline constexpr size_t kMxBlockSize = 32;

// The functions below take descriptions for which is_mx() is true.

/// Returns the scale byte of a block of any length >= 1 (rule: see QuantizeMx).
uint8_t MxScale(std::span<const float> block, const Quantization& spec);

/// Holds the codes and scales of a quantised matrix.
struct MxMatrix {
  Matrix<uint8_t> codes;   ///< [rows, cols]
  Matrix<uint8_t> scales;  ///< [rows, ceil(cols / 32)], E8M0
};

/// Quantises each run of up to 32 consecutive elements of a row to one shared
/// power-of-two scale and one element code each.
///
/// For a block v, let b be the FP32 bits of max|v|, E = b >> 23 its exponent
/// field, M its mantissa field, m the stored mantissa bits of the element and
/// e_max the exponent of its largest power of two. The scale code is
///   kFloor  max(0, E - e_max): the largest elements may saturate
///   kCeil   max(0, E - e_max + [M != 0])
///   kEven   max(0, E' - e_max), E' = (b + (1 << (22 - m))) >> 23; 255 if E' is
///   kRceil  max(0, E - e_max + [M > M_max + [E == e_max]]), M_max the mantissa
///           field of the largest finite value: the least scale under which no
///           element saturates
/// and elements are v * 2^(127 - code), rounded to nearest, ties to even, and
/// saturated; the sign of zero is kept.
///
/// Shapes   values [rows, cols], row-major. A last block of fewer than 32
///          columns is treated as if padded with zeros.
///          result.codes [rows, cols]; result.scales [rows, ceil(cols / 32)].
/// Units    scales are E8M0 codes: code s stands for the factor 2^(s - 127).
/// Special  kBlockNan: a block with a NaN or an infinity gets scale code 255
///          (NaN) and the format's NaN code (zero if it has none).
///          kTe: the scale comes from the elements that are not NaN; it is 254
///          if one of them is infinite. Infinities saturate. A NaN becomes the
///          format's NaN code with its sign, or the largest value if there is
///          none. An all-zero block gets scale code 0 and signed zero codes.
///          Finite blocks near FLT_MAX: kEven may give the NaN scale, kCeil and
///          kRceil may dequantise to infinity.
/// Cost     O(rows * cols); reads `values` twice; allocates only the result.
/// Exact    the result depends on the arguments only. Must not run with
///          subnormals flushed: 2^-127 scales are subnormal.
/// Source   OCP Microscaling Formats (MX) Specification v1.0, section 6.3
///          (kFloor); torchao (kCeil, kEven, kBlockNan); NVIDIA's MXFP8 recipe,
///          arXiv 2506.08027 (kRceil); TransformerEngine (kTe). Exact rules and
///          how they were checked: docs/numerics.md, sections 5 to 7.
MxMatrix QuantizeMx(MatrixView<const float> values, const Quantization& spec);

/// Returns code value * 2^(scale - 127) in FP32; overflow gives infinity.
/// Special  a NaN code or scale gives 0x7FC00000.
/// Errors   ShapeError if scales do not fit codes.
Matrix<float> DequantizeMx(const MxMatrix& quantized, const Format& element);

/// Quantises and dequantises one block, which gives the values of a GEMM
/// operand. They are BF16-representable if those of `in` are.
/// Shapes   in and out have the same length (1 to 32) and may be the same
///          memory.
/// Special  as QuantizeMx followed by DequantizeMx.
void QuantizeDequantizeBlock(std::span<const float> in,
                             const Quantization& spec, std::span<float> out);

}  // namespace isoloss::formats
