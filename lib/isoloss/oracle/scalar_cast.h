// The oracle's own cast of a number to an element format, in exact double
// arithmetic.
#pragma once

#include <cstdint>

#include "isoloss/formats/format.h"
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::oracle {

/// Largest finite value of a format.
double LargestOf(const formats::Format& format);

/// Exponent of the smallest normal number.
int LeastExponent(const formats::Format& format);

/// The cast to one format under one rounding; what depends on them alone is
/// found once, since tensors have many elements.
class ElementCast {
 public:
  ElementCast(const formats::Format& format, formats::RoundingMode rounding);

  /// `value` on the format's grid: neighbours are 2^(e - mantissa_bits) apart,
  /// e the value's exponent or, if that is more, the smallest normal's. The
  /// sign is kept, that of zero only where the format has a sign bit.
  ///
  /// `random`: of stochastic rounding, `bits` bits for this element: less than
  /// 2^bits.
  ///
  /// Special  beyond the largest value: infinity if `overflows`, else the
  ///          largest value. NaN becomes NaN, or +0 where the format has none.
  /// Source   docs/numerics.md, sections 2 and 13.
  float Cast(float value, bool overflows, uint32_t random, int bits) const;

 private:
  formats::Format format_;
  formats::RoundingMode rounding_;
  double largest_;
  int least_exponent_;
};

/// To nearest, ties to even, saturating.
float NearestE4m3(float value);

}  // namespace isoloss::oracle
