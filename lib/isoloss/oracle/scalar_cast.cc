#include "isoloss/oracle/scalar_cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace isoloss::oracle {
namespace {

using formats::RoundingMode;

/// Returns 2^exponent, a normal number.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/// Returns the floor of the logarithm to base 2 of a normal number above 0.
int FloorLog2(double size) {
  return static_cast<int>(std::bit_cast<uint64_t>(size) >> 52) - 1023;
}

/// Returns whether a number that is `part` of a step above `steps` whole ones
/// goes up.
bool GoesUp(RoundingMode rounding, int64_t steps, double part, uint32_t random,
            int bits) {
  switch (rounding) {
    case RoundingMode::kNearestEven: {
      // This has no branches, since no processor could predict them.
      const int beyond = part > 0.5 ? 1 : 0;
      const int tie = part == 0.5 ? 1 : 0;
      return (beyond | (tie & static_cast<int>(steps % 2))) != 0;
    }
    case RoundingMode::kHalfAway:
      return part >= 0.5;
    case RoundingMode::kTowardZero:
      return false;
    case RoundingMode::kStochastic:
      break;
  }
  const double all = PowerOfTwo(bits);
  return std::floor(part * all) + static_cast<double>(random) >= all;
}

}  // namespace

double LargestOf(const formats::Format& format) {
  const int m = format.mantissa_bits;
  const auto code = static_cast<int>(format.max_code);
  if (format.exponent_bits == 0) {
    return code * PowerOfTwo(LeastExponent(format) - m);
  }
  const int significand = (1 << m) + code % (1 << m);
  return significand * PowerOfTwo((code >> m) - format.bias - m);
}

int LeastExponent(const formats::Format& format) { return 1 - format.bias; }

ElementCast::ElementCast(const formats::Format& format,
                         formats::RoundingMode rounding)
    : format_(format),
      rounding_(rounding),
      largest_(LargestOf(format)),
      least_exponent_(LeastExponent(format)) {}

float ElementCast::Cast(float value, bool overflows, uint32_t random,
                        int bits) const {
  if (std::isnan(value)) {
    return format_.has_nan() ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const double size = std::fabs(static_cast<double>(value));
  double result = HUGE_VAL;
  if (std::isfinite(size)) {
    const int exponent = size == 0.0
                             ? least_exponent_
                             : std::max(FloorLog2(size), least_exponent_);
    const int step_exponent = exponent - format_.mantissa_bits;
    // A power of two and its reciprocal are exact.
    const double in_steps = size * PowerOfTwo(-step_exponent);
    const auto steps = static_cast<int64_t>(in_steps);
    const double part = in_steps - static_cast<double>(steps);
    const int up = GoesUp(rounding_, steps, part, random, bits) ? 1 : 0;
    result = static_cast<double>(steps + up) * PowerOfTwo(step_exponent);
  }
  if (result > largest_) result = overflows ? HUGE_VAL : largest_;
  if (format_.twos_complement && result == 0.0) return 0.0f;
  return static_cast<float>(std::copysign(result, value));
}

void ElementCast::CastToNearest(const float* values, float factor, size_t count,
                                float* codes) const {
  constexpr uint64_t kExponent = 0x7FF0'0000'0000'0000;
  const double least = PowerOfTwo(least_exponent_);
  // Added to a number, 1.5 * 2^52 of its steps leave no bits below one step.
  const double steps = 1.5 * PowerOfTwo(52 - format_.mantissa_bits);
  const double most = 2.0 * largest_;
  for (size_t i = 0; i < count; ++i) {
    const float value = values[i] * factor;
    const double size = std::fabs(static_cast<double>(value));
    const double limited = size < most ? size : most;
    const auto power =
        std::bit_cast<double>(std::bit_cast<uint64_t>(limited) & kExponent);
    const double all = (power > least ? power : least) * steps;
    const double rounded = limited + all - all;
    const double result = rounded < largest_ ? rounded : largest_;
    const float code = std::copysign(static_cast<float>(result), value);
    codes[i] = format_.twos_complement && code == 0.0f ? 0.0f : code;
  }
}

float NearestE4m3(float value) {
  static const ElementCast cast(formats::FormatByName("e4m3"),
                                formats::RoundingMode::kNearestEven);
  return cast.Cast(value, /*overflows=*/false, /*random=*/0, /*bits=*/0);
}

}  // namespace isoloss::oracle
