// FP4 E2M1 has only finite codes; the largest value is 6.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_e2m1 = {
    .name = "e2m1",
    .exponent_bits = 2,
    .mantissa_bits = 1,
    .bias = 1,
    .emax = 2,
    .max_code = 0x07,
    .has_infinity = false,
    .nan_code = 0,
    .source = "OCP Microscaling Formats (MX) v1.0, section 5.3.3",
};

}  // namespace isoloss::formats
