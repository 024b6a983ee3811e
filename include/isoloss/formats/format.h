// Number formats, exact and scalar: the definition of what each code means and
// which code a value gets.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {

/// One format of at most 19 bits, whose values FP32 has: sign, exponent,
/// mantissa, or an integer times a power of two, which is a format that has
/// subnormals only (no exponent bits).
/// Registered in formats.def; one file each, which defines kFormat_<name>.
struct Format {
  std::string_view name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  /// Exponent of the largest power of two in the format (E4M3: 8, i.e. 256).
  int emax;
  /// Code of the largest finite value, sign bit clear.
  uint32_t max_code;
  /// True if the code after max_code is an infinity (E5M2).
  bool has_infinity;
  /// Positive canonical NaN code, or 0 where the format has none.
  uint32_t nan_code;
  /// The document that defines it.
  std::string_view source;
  /// Codes of negative values are two's complements (INT8), not a sign bit.
  bool twos_complement = false;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  /// Bits after the leading one of the largest values.
  int fraction_bits() const { return mantissa_bits - (exponent_bits == 0); }
  /// Sign, exponent and mantissa in a byte: what packed kernels take.
  bool is_small_float() const { return bits() <= 8 && !twos_complement; }
  bool has_nan() const { return nan_code != 0; }
  /// FP32 mantissa field of the largest finite value (0x600000 for 448).
  uint32_t max_mantissa_field() const;
};

/// What a value becomes that is rounded beyond the largest finite one, as if
/// the exponents went on.
enum class Overflow {
  kSaturate,   ///< the largest finite value; infinities too
  kNonFinite,  ///< infinity, or NaN where the format has no infinity (sign
               ///< kept); formats with neither saturate
};

/// The value of a code. Special: bits above the format's width must be zero;
/// every NaN code decodes to 0x7FC00000. An INT8 code of the lowest value,
/// which no value gets, decodes to it.
float Decode(const Format& format, uint32_t code);

/// The code nearest to `value`, ties to even, the sign of zero kept.
/// Special  NaN becomes nan_code with the sign of the input kept, or +0 where
///          the format has no NaN. Two's complements have one zero.
/// Source   docs/numerics.md, section 2.
uint32_t Encode(const Format& format, float value, Overflow overflow);

/// The same, rounded otherwise.
uint32_t Encode(const Format& format, float value, Overflow overflow,
                RoundingMode rounding, RandomBits random = {});

/// Decode(Encode(value)).
float RoundToFormat(const Format& format, float value, Overflow overflow);

/// Every scale asks for it, so that it is computed in place.
inline float MaxFinite(const Format& format) {
  if (format.exponent_bits == 0) return Decode(format, format.max_code);
  const int m = format.mantissa_bits;
  constexpr int kFp32MantissaBits = 23;
  constexpr uint32_t kFp32Bias = 127;
  return std::bit_cast<float>(
      ((format.max_code >> m) + kFp32Bias - format.bias) << kFp32MantissaBits |
      (format.max_code & ((1u << m) - 1)) << (kFp32MantissaBits - m));
}

/// All registered formats, in the order of formats.def.
std::span<const Format* const> AllFormats();

/// Errors   ConfigError that lists the registered names.
const Format& FormatByName(std::string_view name);

}  // namespace isoloss::formats
