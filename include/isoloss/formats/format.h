// Defines number formats, exact and scalar: what each code means and which code
// a value gets.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

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

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  /// Returns the number of bits after the leading one of the largest values.
  int fraction_bits() const { return mantissa_bits - (exponent_bits == 0); }
  /// True if a code is sign, exponent and mantissa in a byte, which packed
  /// kernels take.
  bool is_small_float() const { return bits() <= 8 && !twos_complement; }
  bool has_nan() const { return nan_code != 0; }
  /// Returns the FP32 mantissa field of the largest finite value (0x600000 for
  /// 448).
  uint32_t max_mantissa_field() const;
};

/// Says what a value becomes if it is beyond the largest finite value after
/// rounding with unlimited exponents.
enum class Overflow {
  kSaturate,   ///< the largest finite value; infinities too
  kNonFinite,  ///< infinity, or NaN where the format has no infinity (sign
               ///< kept); formats with neither saturate
};

/// Returns the value of a code. Special: bits above the format's width must be
/// zero; every NaN code decodes to 0x7FC00000. The lowest INT8 code decodes to
/// its value, although no value gets it.
float Decode(const Format& format, uint32_t code);

/// Returns the code nearest to `value`, ties to even, the sign of zero kept.
/// Special  NaN becomes nan_code with the sign of the input kept, or +0 where
///          the format has no NaN. Two's complements have one zero.
/// Source   docs/numerics.md, section 2.
uint32_t Encode(const Format& format, float value, Overflow overflow);

/// Does the same with another rounding mode.
uint32_t Encode(const Format& format, float value, Overflow overflow,
                RoundingMode rounding, RandomBits random = {});

/// Returns Decode(Encode(value)).
float RoundToFormat(const Format& format, float value, Overflow overflow);

/// Every scale asks for this value, so it is computed inline.
inline float MaxFinite(const Format& format) {
  if (format.exponent_bits == 0) return Decode(format, format.max_code);
  const int m = format.mantissa_bits;
  constexpr int kFp32MantissaBits = 23;
  constexpr uint32_t kFp32Bias = 127;
  return std::bit_cast<float>(
      ((format.max_code >> m) + kFp32Bias - format.bias) << kFp32MantissaBits |
      (format.max_code & ((1u << m) - 1)) << (kFp32MantissaBits - m));
}

/// Returns all registered formats, in the order of formats.def.
std::span<const Format* const> AllFormats();

/// Returns the format of that name.
/// Errors   ConfigError that lists the registered names.
const Format& FormatByName(std::string_view name);

}  // namespace isoloss::formats
