// FP8 E5M2 is IEEE-like with infinities; the largest value is 57344.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_e5m2 = {
    .name = "e5m2",
    .exponent_bits = 5,
    .mantissa_bits = 2,
    .bias = 15,
    .emax = 15,
    .max_code = 0x7B,
    .has_infinity = true,
    .nan_code = 0x7F,
    .source =
        "OCP 8-bit Floating Point Specification (OFP8) v1.0, E5M2; OCP "
        "Microscaling Formats (MX) v1.0, section 5.3.1",
};

}  // namespace isoloss::formats
