#include "isoloss/formats/format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"

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

/// bits >> shift, rounded to nearest, ties to even. 1 <= shift <= 31.
uint32_t ShiftRightToNearestEven(uint32_t bits, int shift) {
  const uint32_t half_minus_one = (1u << (shift - 1)) - 1;
  const uint32_t odd = bits >> shift & 1;
  return (bits + half_minus_one + odd) >> shift;
}

/// Code of a finite or infinite magnitude, given as FP32 bits, as if the
/// format's exponent range went on beyond max_code.
uint32_t UnboundedCode(const Format& format, uint32_t magnitude) {
  const int m = format.mantissa_bits;
  const int exponent = static_cast<int>(magnitude >> kFp32MantissaBits);
  if (exponent >= kFp32Bias + 1 - format.bias) {
    // Normal in the format. A carry out of the mantissa walks into the
    // exponent, which is what rounding up to the next binade means.
    return ShiftRightToNearestEven(magnitude, kFp32MantissaBits - m) -
           (static_cast<uint32_t>(kFp32Bias - format.bias) << m);
  }
  // Subnormal in the format: the code is the significand in units of the
  // smallest subnormal. Beyond 24 places the value is below half a unit, as all
  // FP32 subnormals are.
  const int shift = 151 - m - format.bias - exponent;
  if (shift > 24) return 0;
  return ShiftRightToNearestEven((magnitude & 0x7FFFFF) | 0x800000, shift);
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
  const uint32_t mantissa = max_code & ((1u << mantissa_bits) - 1);
  return mantissa << (kFp32MantissaBits - mantissa_bits);
}

float Decode(const Format& format, uint8_t code) {
  ISOLOSS_ASSERT(code >> format.bits() == 0);
  const int m = format.mantissa_bits;
  const uint32_t sign = static_cast<uint32_t>(code >> (format.bits() - 1))
                        << 31;
  const uint32_t magnitude = code & ((1u << (format.bits() - 1)) - 1);
  if (magnitude > format.max_code) {
    const bool infinite =
        format.has_infinity && magnitude == format.max_code + 1u;
    return std::bit_cast<float>(infinite ? sign | kFp32Infinity : kFp32Nan);
  }
  const uint32_t exponent = magnitude >> m;
  const uint32_t mantissa = magnitude & ((1u << m) - 1);
  if (exponent == 0) {
    const uint32_t unit_exponent = kFp32Bias + 1 - format.bias - m;
    const float unit =
        std::bit_cast<float>(sign | unit_exponent << kFp32MantissaBits);
    return static_cast<float>(mantissa) * unit;
  }
  return std::bit_cast<float>(
      sign | (exponent + (kFp32Bias - format.bias)) << kFp32MantissaBits |
      mantissa << (kFp32MantissaBits - m));
}

uint8_t Encode(const Format& format, float value, Overflow overflow) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & kFp32Magnitude;
  const uint32_t sign = bits >> 31 << (format.bits() - 1);
  if (magnitude > kFp32Infinity) {
    return static_cast<uint8_t>(format.has_nan() ? sign | format.nan_code : 0);
  }
  uint32_t code = UnboundedCode(format, magnitude);
  if (code > format.max_code) code = OverflowCode(format, overflow);
  return static_cast<uint8_t>(sign | code);
}

float RoundToFormat(const Format& format, float value, Overflow overflow) {
  return Decode(format, Encode(format, value, overflow));
}

float MaxFinite(const Format& format) {
  return Decode(format, format.max_code);
}

std::span<const Format* const> AllFormats() { return kFormats; }

const Format& FormatByName(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Format* format : AllFormats()) {
    if (format->name == name) return *format;
    names.push_back(format->name);
  }
  ThrowError(ErrorKind::kConfig,
             "number format: `{}` was given, but it must be one of {}. Use one "
             "of these names.",
             name, fmt::join(names, ", "));
}

}  // namespace isoloss::formats
