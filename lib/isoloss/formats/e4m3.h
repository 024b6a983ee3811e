// FP8 E4M3 is the variant without infinities ("fn"); the largest value is 448.
// Scales are stored in it, too.
#pragma once

#include "isoloss/formats/format.h"

namespace isoloss::formats {

inline constexpr Format kE4m3Format = {
    .name = "e4m3",
    .exponent_bits = 4,
    .mantissa_bits = 3,
    .bias = 7,
    .emax = 8,
    .max_code = 0x7E,
    .has_infinity = false,
    .nan_code = 0x7F,
    .source =
        "OCP 8-bit Floating Point Specification (OFP8) v1.0, E4M3; OCP "
        "Microscaling Formats (MX) v1.0, section 5.3.1",
};

}  // namespace isoloss::formats
