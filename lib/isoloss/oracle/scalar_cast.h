// Casts a number to an element format in exact double arithmetic, for the
// oracle alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "isoloss/formats/format.h"
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::oracle {

inline constexpr float kFloatMax = std::numeric_limits<float>::max();
inline constexpr float kLargestE4m3 = 448.0f;

/// Returns the largest finite value of a format.
double LargestOf(const formats::Format& format);

/// Returns the exponent of the smallest normal number.
int LeastExponent(const formats::Format& format);

/// Casts to one format under one rounding. Constants of both are computed once,
/// since tensors have many elements.
class ElementCast {
 public:
  ElementCast(const formats::Format& format, formats::RoundingMode rounding);

  /// Returns `value` on the format's grid, where neighbours are 2^(e -
  /// mantissa_bits) apart. e is the value's exponent, but at least the smallest
  /// normal's. The sign is kept, but zero's only if the format has a sign bit.
  ///
  /// Stochastic rounding reads `random`, which has `bits` bits for this element
  /// and is less than 2^bits.
  ///
  /// Special  beyond the largest value: infinity if `overflows`, else the
  ///          largest value. NaN becomes NaN, or +0 where the format has none.
  /// Source   docs/numerics.md, sections 2 and 13.
  float Cast(float value, bool overflows, uint32_t random, int bits) const;

  /// Sets codes[i] = Cast(values[i] * factor) for finite values, rounded to the
  /// nearest, ties to even, which saturate.
  void CastToNearest(const float* values, float factor, size_t count,
                     float* codes) const;

 private:
  formats::Format format_;
  formats::RoundingMode rounding_;
  double largest_;
  int least_exponent_;
};

/// Returns the nearest E4M3 number; ties go to even, and large values saturate.
float NearestE4m3(float value);

}  // namespace isoloss::oracle
