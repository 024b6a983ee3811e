// The largest value of FP16 is 65504.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_fp16 = {
    .name = "fp16",
    .exponent_bits = 5,
    .mantissa_bits = 10,
    .bias = 15,
    .emax = 15,
    .max_code = 0x7BFF,
    .has_infinity = true,
    .nan_code = 0x7E00,
    .source = "IEEE 754-2019, binary16",
};

}  // namespace isoloss::formats
