// TF32 has the exponents of FP32 and the precision of FP16.
#include "isoloss/formats/format.h"

namespace isoloss::formats {

extern constinit const Format kFormat_tf32 = {
    .name = "tf32",
    .exponent_bits = 8,
    .mantissa_bits = 10,
    .bias = 127,
    .emax = 127,
    .max_code = 0x3FBFF,
    .has_infinity = true,
    .nan_code = 0x3FE00,
    .source =
        "NVIDIA A100 Tensor Core GPU Architecture white paper (2020); PTX ISA, "
        ".tf32",
};

}  // namespace isoloss::formats
