// Says what range a format has and how its values are spread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/formats/format.h"

namespace isoloss::formats {

/// Has the positive values from 2^exponent up to the next power of two.
struct Binade {
  int exponent = 0;
  uint32_t first_code = 0;
  uint32_t values = 0;
  double spacing = 0;  ///< of neighbours
  /// This is half the spacing divided by the least value. It is the largest
  /// relative error of rounding to nearest in this binade.
  double worst_error = 0;

  bool operator==(const Binade&) const = default;
};

/// The numbers are exact: all are multiples of powers of two that FP64 has.
struct FormatRange {
  double max = 0;
  std::optional<double> min_normal;  ///< integers have none
  double min_subnormal = 0;
  uint32_t codes = 0;           ///< all
  uint32_t finite = 0;          ///< codes that a finite value may get
  uint32_t values = 0;          ///< of these, +0 and -0 being one
  std::vector<Binade> binades;  ///< upwards
};

FormatRange RangeOf(const Format& format);

}  // namespace isoloss::formats
