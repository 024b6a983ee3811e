// Rows of FP32 words as bytes on the wire, and back.
//
// scalar/wire.h repeats each function as the definition.
//
// Shapes   row [width]; bytes [the size named with each format], of any
//          alignment, no memory of row. Numbers of more than one byte have the
//          byte order of the machine: a run never mixes machines.
// Exact    bits depend on the arguments only, not on the instruction set.
#pragma once

#include <cstddef>

#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// A row takes 2 * width bytes: formats::EncodeBf16 of each value; decoding
/// returns the values of the codes.
void EncodeBf16Row(const float* row, size_t width, std::byte* bytes);
void DecodeBf16Row(const std::byte* bytes, size_t width, float* row);

/// A row takes width + ceil(width / 32) bytes: E4M3 codes, then one E8M0 scale
/// for each run of 32 values (the last may be short). They are exactly those of
/// formats::QuantizeMx with kRceil and kBlockNan. A decoded value is round(code
/// value * scale).
/// Special  a NaN or an infinity makes its whole run NaN, as in a GEMM operand.
void EncodeMxRow(const float* row, size_t width, std::byte* bytes);
void DecodeMxRow(const std::byte* bytes, size_t width, Rounding rounding,
                 float* row);

/// Runs of this number of values share an FP32 scale; the last run of a row may
/// be shorter.
inline constexpr size_t kScaledRun = 128;

/// The scale of a run depends on a = max(largest magnitude, 1e-4).
enum class RunScale {
  kFp32,  ///< a / 448; codes are E4M3(x * (448 / a))
  kPow2,  ///< the least power of two S with 448 * S >= a; codes are E4M3(x / S)
};

/// A row takes width + 4 * ceil(width / 128) bytes: E4M3 codes (to nearest,
/// ties to even, the sign of zero kept; none saturates), then the FP32 scales
/// of the runs. A decoded value is round(code value * scale). Each operation is
/// one FP32 operation.
/// Special  a NaN or an infinity makes its whole run NaN: codes 0x7F, scale
///          0x7FC00000. DeepEP's device code would lose a NaN in the maximum
///          and, for an infinity, store the scale infinity, under which the
///          other values decode to NaN too.
/// Source   DeepEP dd758caf, per_token_cast_to_fp8 in deep_ep/utils/math.py.
///          Its cast to powers of two takes ceil(log2) of the FP32 product
///          a * (1 / 448); docs/numerics.md, section 5, shows that this is the
///          same power.
void EncodeE4m3Row(const float* row, size_t width, RunScale run_scale,
                   std::byte* bytes);
void DecodeE4m3Row(const std::byte* bytes, size_t width, Rounding rounding,
                   float* row);

}  // namespace isoloss::kernels
