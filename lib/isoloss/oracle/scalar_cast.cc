#include "isoloss/oracle/scalar_cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "isoloss/base/error.h"

namespace isoloss::oracle {
namespace {

/// 2^exponent, a normal number.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/// Floor of the logarithm to base 2 of a normal number above 0.
int FloorLog2(double size) {
  return static_cast<int>(std::bit_cast<uint64_t>(size) >> 52) - 1023;
}

/// Does a number go up that lies `part` of a step above `steps` whole ones?
bool GoesUp(std::string_view rounding, int64_t steps, double part,
            uint32_t random, int bits) {
  if (rounding == "nearest_even") {
    return part > 0.5 || (part == 0.5 && steps % 2 == 1);
  }
  if (rounding == "half_away") return part >= 0.5;
  if (rounding == "toward_zero") return false;
  if (rounding == "stochastic") {
    const double all = PowerOfTwo(bits);
    return std::floor(part * all) + static_cast<double>(random) >= all;
  }
  ThrowError(ErrorKind::kConfig,
             "oracle: rounding {} was given, but it knows nearest_even, "
             "half_away, toward_zero and stochastic. State the new one in "
             "oracle/scalar_cast.cc.",
             rounding);
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

float CastTo(const formats::Format& format,
             const formats::RoundingMode& rounding, float value, bool overflows,
             uint32_t random, int bits) {
  if (std::isnan(value)) {
    return format.has_nan() ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const double size = std::fabs(static_cast<double>(value));
  const double largest = LargestOf(format);
  double result = HUGE_VAL;
  if (std::isfinite(size)) {
    const int exponent = size == 0.0
                             ? LeastExponent(format)
                             : std::max(FloorLog2(size), LeastExponent(format));
    const double step = PowerOfTwo(exponent - format.mantissa_bits);
    const double in_steps = size / step;
    const auto steps = static_cast<int64_t>(in_steps);
    const double part = in_steps - static_cast<double>(steps);
    const bool up =
        part > 0.0 && GoesUp(rounding.name, steps, part, random, bits);
    result = static_cast<double>(steps + (up ? 1 : 0)) * step;
  }
  if (result > largest) result = overflows ? HUGE_VAL : largest;
  if (format.twos_complement && result == 0.0) return 0.0f;
  return static_cast<float>(std::signbit(value) ? -result : result);
}

}  // namespace isoloss::oracle
