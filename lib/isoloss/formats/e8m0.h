// Decodes and computes E8M0 scales: an E8M0 byte stands for a power of two.
#pragma once

#include <bit>
#include <cstdint>

#include "isoloss/formats/format.h"
#include "isoloss/formats/quantization.h"

namespace isoloss::formats {

inline constexpr uint8_t kNanE8m0 = 0xFF;
inline constexpr uint8_t kMaxE8m0 = 0xFE;

/// Returns 2^(s - 127) for byte s; 0xFF is NaN and 0 is the FP32 subnormal
/// 2^-127.
constexpr float DecodeE8m0(uint8_t scale) {
  if (scale == kNanE8m0) return std::bit_cast<float>(0x7FC00000u);
  if (scale == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(uint32_t{scale} << 23);
}

/// Returns 2^(127 - s), or NaN for 0xFF.
constexpr float E8m0Reciprocal(uint8_t scale) {
  return DecodeE8m0(scale == kNanE8m0 ? kNanE8m0
                                      : static_cast<uint8_t>(kMaxE8m0 - scale));
}

/// Returns the scale of a block whose largest magnitude has the finite bits
/// `amax`. QuantizeMx documents the rules, and docs/numerics.md, section 5, has
/// them for INT8. `rule` is one of E8M0.
constexpr uint8_t E8m0Scale(uint32_t amax, const Format& element,
                            ScaleRule rule) {
  const uint32_t exponent = amax >> 23;
  const uint32_t mantissa = amax & 0x7FFFFF;
  const uint32_t emax = static_cast<uint32_t>(element.emax);
  // Below 2^-126 an FP32 number has no implicit leading one. That matters only
  // for emax 0, where the scale is not below 2^-126 itself.
  const bool subnormal = exponent == 0 && emax == 0;
  uint32_t rounded = exponent;
  switch (rule) {
    case ScaleRule::kCeil:
      rounded += mantissa > (subnormal ? 0x400000u : 0u) ? 1 : 0;
      break;
    case ScaleRule::kEven:
      rounded = (amax + (1u << (22 - element.fraction_bits()))) >> 23;
      if (rounded == 255) return kNanE8m0;
      break;
    case ScaleRule::kRceil: {
      // The definition rounds amax * (1 / max) to FP32 first. The result
      // differs from the exact quotient for one amax per format, whose quotient
      // rounds down to 2^-127. For INT8 the quotient is exact.
      const uint32_t field = element.max_mantissa_field();
      const uint32_t limit = subnormal ? (field | 0x800000) >> 1
                                       : field + (exponent == emax ? 1 : 0);
      rounded += mantissa > limit ? 1 : 0;
      break;
    }
    default:
      break;
  }
  const uint32_t scale = rounded > emax ? rounded - emax : 0;
  return static_cast<uint8_t>(scale < kMaxE8m0 ? scale : kMaxE8m0);
}

}  // namespace isoloss::formats
