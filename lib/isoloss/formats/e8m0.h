// Decodes and computes E8M0 scales: an E8M0 byte stands for a power of two.
#pragma once

#include <cstdint>

#include "isoloss/formats/format.h"
#include "isoloss/formats/quantization.h"

namespace isoloss::formats {

inline constexpr uint8_t kNanE8m0 = 0xFF;
inline constexpr uint8_t kMaxE8m0 = 0xFE;

/// Returns 2^(s - 127) for byte s; 0xFF is NaN and 0 is the FP32 subnormal
/// 2^-127.
float DecodeE8m0(uint8_t scale);
/// Returns 2^(127 - s), or NaN for 0xFF.
float E8m0Reciprocal(uint8_t scale);

/// Returns the scale of a block whose largest magnitude has the finite bits
/// `amax`. QuantizeMx documents the rules, and docs/numerics.md, section 5, has
/// them for INT8. `rule` is one of E8M0.
uint8_t E8m0Scale(uint32_t amax, const Format& element, ScaleRule rule);

}  // namespace isoloss::formats
