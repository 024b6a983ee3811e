// FP6 E3M2 has only finite codes; the largest value is 28.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_e3m2 = {
    .name = "e3m2",
    .exponent_bits = 3,
    .mantissa_bits = 2,
    .bias = 3,
    .emax = 4,
    .max_code = 0x1F,
    .has_infinity = false,
    .nan_code = 0,
    .source = "OCP Microscaling Formats (MX) v1.0, section 5.3.2",
};

}  // namespace isoloss::formats
