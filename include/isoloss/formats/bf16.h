// Converts to BF16, which is the upper half of FP32 (1-8-7 bits), rounded to
// nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace isoloss::formats {

/// Returns the BF16 bits nearest to `value`, ties to even.
/// Special  NaN becomes 0x7FC0 with the sign kept; values from 0x7F7F8000 on
///          overflow to infinity; subnormals are rounded, never flushed.
/// Source   docs/numerics.md, section 3.
constexpr uint16_t EncodeBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) {
    return static_cast<uint16_t>(bits >> 16 & 0x8000) | 0x7FC0;
  }
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

constexpr float DecodeBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// Returns the value of EncodeBf16, kept in an FP32 word.
constexpr float RoundToBf16(float value) {
  return DecodeBf16(EncodeBf16(value));
}

}  // namespace isoloss::formats
