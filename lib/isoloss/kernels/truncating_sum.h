// Models the adder of NVIDIA's tensor cores: terms are aligned to the largest
// one and cut off. It is constexpr, so that kernels of a device can share
// this text.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/kernels/accumulator.h"

namespace isoloss::kernels {

constexpr int FloatExponentOf(float value) {
  const auto field =
      static_cast<int>(std::bit_cast<uint32_t>(value) >> 23 & 0xFF);
  return (field == 0 ? 1 : field) - 127;
}

/// Returns term / 2^unit, cut off toward zero. The term is at most 2^27 units,
/// and no subnormal double: it is a float or a product of two.
constexpr int64_t UnitsIn(double term, int unit) {
  constexpr int kFractionBits = 52;
  constexpr int kBias = 1023;
  const auto bits = std::bit_cast<uint64_t>(term);
  const int exponent = static_cast<int>(bits >> kFractionBits & 0x7FF) - kBias;
  if (exponent == -kBias) return 0;
  const uint64_t one = uint64_t{1} << kFractionBits;
  const int shift = unit - exponent + kFractionBits;
  const uint64_t magnitude =
      shift < 64 ? ((bits & (one - 1)) | one) >> shift : 0;
  const auto units = static_cast<int64_t>(magnitude);
  return bits >> 63 != 0 ? -units : units;
}

/// Returns total * 2^unit, cut off toward zero to `significand_bits` <= 24 and
/// to FP32.
constexpr float CutOff(int64_t total, int unit, int significand_bits) {
  if (total == 0) return 0.0f;
  const uint32_t sign = total < 0 ? 0x80000000u : 0;
  auto magnitude = static_cast<uint64_t>(total < 0 ? -total : total);
  const auto width = static_cast<int>(std::bit_width(magnitude));
  if (width > significand_bits) {
    const int cut = width - significand_bits;
    magnitude = magnitude >> cut << cut;
  }
  const int exponent = unit + width - 1;
  uint32_t bits = 0;
  if (exponent > 127) {
    bits = 0x7F7FFFFF;
  } else if (exponent >= -126) {
    const uint64_t significand =
        width > 24 ? magnitude >> (width - 24) : magnitude << (24 - width);
    bits = static_cast<uint32_t>(exponent + 127) << 23 |
           static_cast<uint32_t>(significand & 0x7FFFFF);
  } else {
    const int shift = -149 - unit;
    bits = static_cast<uint32_t>(shift <= 0   ? magnitude << -shift
                                 : shift < 64 ? magnitude >> shift
                                              : 0);
  }
  return std::bit_cast<float>(sign | bits);
}

/// sum + the `count` <= steps products a[k] b[k]: with E the largest exponent
/// of all terms, each is cut off (toward zero) below 2^(E - fraction_bits);
/// they are added exactly and cut off to `significand_bits`, then to FP32.
///
/// The exponent of a product is the sum of its factors' exponents, even if the
/// product of their significands is 2 or more, or zero. That of `sum` is its
/// FP32 exponent, -126 of a subnormal. Factors have at most 8 significant bits.
/// Special  if a term is not finite, the result is what FP32 additions give.
/// Source   microsoft/MMA-Sim c785138.
constexpr float TruncatingSum(const Accumulator& accumulator, float sum,
                              const Elements& a, const Elements& b,
                              size_t count) {
  int largest = FloatExponentOf(sum);
  float plain = sum;
  // An intermediate overflow is no reason to stop: the terms decide.
  bool finite = std::isfinite(sum);
  for (size_t k = 0; k < count; ++k) {
    const int exponent = a.exponents[k] + b.exponents[k];
    if (exponent > largest) largest = exponent;
    plain = std::fma(a.values[k], b.values[k], plain);
    finite = finite && std::isfinite(a.values[k]) && std::isfinite(b.values[k]);
  }
  if (!finite) return plain;

  // Terms are at most 2^(F + 2), F <= 25, so that 33 of them fit into 64 bits.
  const int unit = largest - accumulator.fraction_bits;
  int64_t total = UnitsIn(static_cast<double>(sum), unit);
  for (size_t k = 0; k < count; ++k) {
    total += UnitsIn(
        static_cast<double>(a.values[k]) * static_cast<double>(b.values[k]),
        unit);
  }
  return CutOff(total, unit, accumulator.significand_bits);
}

}  // namespace isoloss::kernels
