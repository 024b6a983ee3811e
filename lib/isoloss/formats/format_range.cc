#include "isoloss/formats/format_range.h"

#include <cmath>

namespace isoloss::formats {

FormatRange RangeOf(const Format& format) {
  const auto value = [&](uint32_t code) {
    return static_cast<double>(Decode(format, code));
  };
  FormatRange range;
  range.max = value(format.max_code);
  if (format.exponent_bits > 0) {
    range.min_normal = value(1u << format.mantissa_bits);
  }
  range.min_subnormal = value(1);
  range.codes = 1u << format.bits();
  range.values = 2 * format.max_code + 1;
  range.finite = range.values + (format.twos_complement ? 0 : 1);
  double spacing = range.min_subnormal;
  for (uint32_t code = 1; code <= format.max_code; ++code) {
    const int exponent = std::ilogb(value(code));
    if (range.binades.empty() || range.binades.back().exponent != exponent) {
      if (code < format.max_code) spacing = value(code + 1) - value(code);
      range.binades.push_back(
          {exponent, code, 0, spacing, spacing / 2 / value(code)});
    }
    ++range.binades.back().values;
  }
  return range;
}

}  // namespace isoloss::formats
