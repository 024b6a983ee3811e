// BF16 is the upper half of FP32.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_bf16 = {
    .name = "bf16",
    .exponent_bits = 8,
    .mantissa_bits = 7,
    .bias = 127,
    .emax = 127,
    .max_code = 0x7F7F,
    .has_infinity = true,
    .nan_code = 0x7FC0,
    .source = "docs/numerics.md, section 3",
};

}  // namespace isoloss::formats
