// Dot products in double precision with the error that FP32 may make.
#pragma once

#include <cstddef>

#include "isoloss/oracle/estimate.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// Of a recipe's activations and their gradients.
Grid ActivationGrid(const precision::Recipe& recipe);

/// Sum of a[k] b[k] over `size` terms, which defines what oracle/dot_panel.h
/// computes of many at once. Products and partial sums are exact in
/// double up to 2^-53 relative, far below FP32's noise.
///
/// bound: gamma_K * sum |a b|, K = size. Whatever the order (reversed, split,
/// a tree over segments) and whether products are rounded by themselves, a term
/// takes part in at most K roundings.
/// noise: root of the sum of squares of the roundings that the FP32 chain in
/// ascending order makes, or, if that is more, K roundings at the largest term:
/// what an order makes that begins with it. 0 where all sums fit in any order,
/// as those of MX products often do.
Estimate Dot(const float* a, const float* b, size_t size, size_t a_stride = 1,
             size_t b_stride = 1);

/// As Dot with all b[k] = 1.
Estimate Sum(const float* values, size_t size, size_t stride = 1);

}  // namespace isoloss::oracle
