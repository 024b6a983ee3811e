// Defines number formats, exact and scalar: what each code means and which code
// a value gets.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {

/// Is one format of at most 19 bits, all of whose values are FP32 values. It
/// has a sign, an exponent and a mantissa; or it is an integer times a power of
/// two. The latter has no exponent bits, so all its values are subnormals.
/// Formats are registered in formats.def; each has a file, which defines
/// kFormat_<name>.
struct Format {
  std::string_view name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  /// This is the exponent of the largest power of two in the format (E4M3: 8,
  /// i.e. 256).
  int emax;
  /// This is the code of the largest finite value, sign bit clear.
  uint32_t max_code;
  /// True if the code after max_code is an infinity (E5M2).
  bool has_infinity;
  /// This is the positive canonical NaN code, or 0 if the format has none.
  uint32_t nan_code;
  /// This document defines the format.
  std::string_view source;
  /// True if codes of negative values are two's complements (INT8) instead of
  /// having a sign bit.
  bool twos_complement = false;

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  /// Returns the number of bits after the leading one of the largest values.
  constexpr int fraction_bits() const {
    return mantissa_bits - (exponent_bits == 0);
  }
  /// True if a code is sign, exponent and mantissa in a byte, which packed
  /// kernels take.
  constexpr bool is_small_float() const {
    return bits() <= 8 && !twos_complement;
  }
  constexpr bool has_nan() const { return nan_code != 0; }
  /// Returns the FP32 mantissa field of the largest finite value (0x600000 for
  /// 448).
  constexpr uint32_t max_mantissa_field() const;
};

/// Says what a value becomes if it is beyond the largest finite value after
/// rounding with unlimited exponents.
enum class Overflow {
  kSaturate,   ///< the largest finite value; infinities too
  kNonFinite,  ///< infinity, or NaN where the format has no infinity (sign
               ///< kept); formats with neither saturate
};

namespace fp32 {

inline constexpr int kMantissaBits = 23;
inline constexpr int kBias = 127;
inline constexpr uint32_t kMagnitude = 0x7FFFFFFF;
inline constexpr uint32_t kInfinity = 0x7F800000;
inline constexpr uint32_t kNan = 0x7FC00000;

/// Returns 2^exponent for exponents from -149 to 127.
constexpr float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(exponent < 1 - kBias
                                  ? uint32_t{1} << (exponent + 149)
                                  : static_cast<uint32_t>(exponent + kBias)
                                        << kMantissaBits);
}

}  // namespace fp32

/// Returns the value of a code, as Decode, of codes that Encode made.
constexpr float ValueOfCode(const Format& format, uint32_t code) {
  const int m = format.mantissa_bits;
  const uint32_t sign_bit = 1u << (format.bits() - 1);
  const uint32_t sign = (code & sign_bit) != 0 ? 0x80000000 : 0;
  const bool complemented = format.twos_complement && sign != 0;
  const uint32_t magnitude =
      complemented ? 2 * sign_bit - code : code & (sign_bit - 1);
  if (magnitude > format.max_code && !complemented) {
    const bool infinite =
        format.has_infinity && magnitude == format.max_code + 1u;
    return std::bit_cast<float>(infinite ? sign | fp32::kInfinity : fp32::kNan);
  }
  const uint32_t exponent = magnitude >> m;
  const uint32_t mantissa = magnitude & ((1u << m) - 1);
  if (exponent == 0 || format.exponent_bits == 0) {
    const float value =
        static_cast<float>(magnitude) * fp32::PowerOfTwo(1 - format.bias - m);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(
      sign | (exponent + (fp32::kBias - format.bias)) << fp32::kMantissaBits |
      mantissa << (fp32::kMantissaBits - m));
}

/// Returns the value of a code. Special: bits above the format's width must be
/// zero; every NaN code decodes to 0x7FC00000. The lowest INT8 code decodes to
/// its value, although no value gets it.
inline float Decode(const Format& format, uint32_t code) {
  ISOLOSS_ASSERT(code >> format.bits() == 0);
  return ValueOfCode(format, code);
}

/// Returns the code of a finite or infinite magnitude, given as FP32 bits, as
/// if the format's exponent range had no end at max_code.
constexpr uint64_t UnboundedCode(const Format& format, uint32_t magnitude,
                                 RoundingMode rounding, RandomBits random) {
  const int m = format.mantissa_bits;
  const int exponent = static_cast<int>(magnitude >> fp32::kMantissaBits);
  if (exponent >= fp32::kBias + 1 - format.bias) {
    // The value is normal in the format. A carry out of the mantissa moves into
    // the exponent, which is right for rounding up to the next binade.
    return DropBits(rounding, magnitude, fp32::kMantissaBits - m, random) -
           (static_cast<uint64_t>(fp32::kBias - format.bias) << m);
  }
  // The value is subnormal in the format: the code is the significand in units
  // of the smallest subnormal. FP32's own subnormals have the exponent 1.
  const uint32_t significand =
      exponent == 0 ? magnitude : (magnitude & 0x7FFFFF) | 0x800000;
  constexpr int kAllBits = 63;
  const int shift = 151 - m - format.bias - (exponent == 0 ? 1 : exponent);
  return DropBits(rounding, significand, shift < kAllBits ? shift : kAllBits,
                  random);
}

/// Returns the code of a magnitude beyond the largest one.
constexpr uint32_t OverflowCode(const Format& format, Overflow overflow) {
  if (overflow == Overflow::kNonFinite) {
    if (format.has_infinity) return format.max_code + 1u;
    if (format.has_nan()) return format.nan_code;
  }
  return format.max_code;
}

/// Returns the code nearest to `value`, ties to even, the sign of zero kept.
/// Special  NaN becomes nan_code with the sign of the input kept, or +0 where
///          the format has no NaN. Two's complements have one zero.
/// Source   docs/numerics.md, section 2.
constexpr uint32_t Encode(const Format& format, float value, Overflow overflow,
                          RoundingMode rounding = RoundingMode::kNearestEven,
                          RandomBits random = {}) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & fp32::kMagnitude;
  const uint32_t sign = bits >> 31 << (format.bits() - 1);
  if (magnitude > fp32::kInfinity) {
    return format.has_nan() ? sign | format.nan_code : 0;
  }
  const uint64_t unbounded = UnboundedCode(format, magnitude, rounding, random);
  const uint32_t code = unbounded > format.max_code
                            ? OverflowCode(format, overflow)
                            : static_cast<uint32_t>(unbounded);
  if (!format.twos_complement) return sign | code;
  return sign != 0 && code != 0 ? 2 * sign - code : code;
}

/// Returns Decode(Encode(value)).
constexpr float RoundToFormat(const Format& format, float value,
                              Overflow overflow) {
  return ValueOfCode(format, Encode(format, value, overflow));
}

constexpr float MaxFinite(const Format& format) {
  return ValueOfCode(format, format.max_code);
}

constexpr uint32_t Format::max_mantissa_field() const {
  return std::bit_cast<uint32_t>(MaxFinite(*this)) & 0x7FFFFF;
}

/// Returns all registered formats, in the order of formats.def.
std::span<const Format* const> AllFormats();

/// Returns the format of that name.
/// Errors   ConfigError that lists the registered names.
const Format& FormatByName(std::string_view name);

}  // namespace isoloss::formats
