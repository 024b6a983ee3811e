// MXINT8 has the multiples of 2^-6. The lowest code, -2, stays unused, so that
// values are symmetric.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_int8 = {
    .name = "int8",
    .exponent_bits = 0,
    .mantissa_bits = 7,
    .bias = 0,
    .emax = 0,
    .max_code = 0x7F,
    .has_infinity = false,
    .nan_code = 0,
    .source = "OCP Microscaling Formats (MX) v1.0, section 5.3.4",
    .twos_complement = true,
};

}  // namespace isoloss::formats
