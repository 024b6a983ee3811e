// Models the adder of NVIDIA's tensor cores: terms are aligned to the largest
// one and cut off.
#pragma once

#include <cstddef>

#include "isoloss/kernels/accumulator.h"

namespace isoloss::kernels {

/// sum + the `count` <= steps products a[k] b[k]: with E the largest exponent
/// of all terms, each is cut off (toward zero) below 2^(E - fraction_bits);
/// they are added exactly and cut off to `significand_bits`, then to FP32.
///
/// The exponent of a product is the sum of its factors' exponents, even if the
/// product of their significands is 2 or more, or zero. That of `sum` is its
/// FP32 exponent, -126 of a subnormal.
/// Special  if a term is not finite, the result is what FP32 additions give.
/// Source   microsoft/MMA-Sim c785138.
float TruncatingSum(const Accumulator& accumulator, float sum,
                    const Elements& a, const Elements& b, size_t count);

}  // namespace isoloss::kernels
