#include "isoloss/formats/format.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/formats/registered.h"

namespace isoloss::formats {

#define ISOLOSS_FORMAT(name) extern const Format kFormat_##name;
#include "isoloss/formats/formats.def"
#undef ISOLOSS_FORMAT

namespace {

constexpr int kFp32MantissaBits = 23;
constexpr int kFp32Bias = 127;
constexpr uint32_t kFp32Magnitude = 0x7FFFFFFF;
constexpr uint32_t kFp32Infinity = 0x7F800000;
constexpr uint32_t kFp32Nan = 0x7FC00000;

constexpr const Format* kFormats[] = {
#define ISOLOSS_FORMAT(name) &kFormat_##name,
#include "isoloss/formats/formats.def"
#undef ISOLOSS_FORMAT
};

/// Returns the code of a finite or infinite magnitude, given as FP32 bits, as
/// if the format's exponent range had no end at max_code.
uint64_t UnboundedCode(const Format& format, uint32_t magnitude,
                       RoundingMode rounding, RandomBits random) {
  const int m = format.mantissa_bits;
  const int exponent = static_cast<int>(magnitude >> kFp32MantissaBits);
  if (exponent >= kFp32Bias + 1 - format.bias) {
    // The value is normal in the format. A carry out of the mantissa moves into
    // the exponent, which is right for rounding up to the next binade.
    return DropBits(rounding, magnitude, kFp32MantissaBits - m, random) -
           (static_cast<uint64_t>(kFp32Bias - format.bias) << m);
  }
  // The value is subnormal in the format: the code is the significand in units
  // of the smallest subnormal. FP32's own subnormals have the exponent 1.
  const uint32_t significand =
      exponent == 0 ? magnitude : (magnitude & 0x7FFFFF) | 0x800000;
  constexpr int kAllBits = 63;
  const int shift = 151 - m - format.bias - std::max(exponent, 1);
  return DropBits(rounding, significand, std::min(shift, kAllBits), random);
}

uint32_t OverflowCode(const Format& format, Overflow overflow) {
  if (overflow == Overflow::kNonFinite) {
    if (format.has_infinity) return format.max_code + 1u;
    if (format.has_nan()) return format.nan_code;
  }
  return format.max_code;
}

}  // namespace

uint32_t Format::max_mantissa_field() const {
  return std::bit_cast<uint32_t>(MaxFinite(*this)) & 0x7FFFFF;
}

float Decode(const Format& format, uint32_t code) {
  ISOLOSS_ASSERT(code >> format.bits() == 0);
  const int m = format.mantissa_bits;
  const uint32_t sign_bit = 1u << (format.bits() - 1);
  const uint32_t sign = (code & sign_bit) != 0 ? 0x80000000 : 0;
  const bool complemented = format.twos_complement && sign != 0;
  const uint32_t magnitude =
      complemented ? 2 * sign_bit - code : code & (sign_bit - 1);
  if (magnitude > format.max_code && !complemented) {
    const bool infinite =
        format.has_infinity && magnitude == format.max_code + 1u;
    return std::bit_cast<float>(infinite ? sign | kFp32Infinity : kFp32Nan);
  }
  const uint32_t exponent = magnitude >> m;
  const uint32_t mantissa = magnitude & ((1u << m) - 1);
  if (exponent == 0 || format.exponent_bits == 0) {
    const float value =
        std::ldexp(static_cast<float>(magnitude), 1 - format.bias - m);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(
      sign | (exponent + (kFp32Bias - format.bias)) << kFp32MantissaBits |
      mantissa << (kFp32MantissaBits - m));
}

uint32_t Encode(const Format& format, float value, Overflow overflow) {
  return Encode(format, value, overflow, RoundingMode::kNearestEven);
}

uint32_t Encode(const Format& format, float value, Overflow overflow,
                RoundingMode rounding, RandomBits random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & kFp32Magnitude;
  const uint32_t sign = bits >> 31 << (format.bits() - 1);
  if (magnitude > kFp32Infinity) {
    return format.has_nan() ? sign | format.nan_code : 0;
  }
  const uint64_t unbounded = UnboundedCode(format, magnitude, rounding, random);
  const uint32_t code = unbounded > format.max_code
                            ? OverflowCode(format, overflow)
                            : static_cast<uint32_t>(unbounded);
  if (!format.twos_complement) return sign | code;
  return sign != 0 && code != 0 ? 2 * sign - code : code;
}

float RoundToFormat(const Format& format, float value, Overflow overflow) {
  return Decode(format, Encode(format, value, overflow));
}

std::span<const Format* const> AllFormats() { return kFormats; }

const Format& FormatByName(std::string_view name) {
  return RegisteredByName(AllFormats(), name, "number format");
}

}  // namespace isoloss::formats
