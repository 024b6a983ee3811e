// FP6 E2M3 has only finite codes; the largest value is 7.5.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_e2m3 = {
    .name = "e2m3",
    .exponent_bits = 2,
    .mantissa_bits = 3,
    .bias = 1,
    .emax = 2,
    .max_code = 0x1F,
    .has_infinity = false,
    .nan_code = 0,
    .source = "OCP Microscaling Formats (MX) v1.0, section 5.3.2",
};

}  // namespace isoloss::formats
