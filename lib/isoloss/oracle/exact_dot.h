// Computes dot products in double precision with the error that FP32 may make.
#pragma once

#include <cstddef>

#include "isoloss/oracle/estimate.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// Returns the grid of a recipe's activations and their gradients.
Grid ActivationGrid(const precision::Recipe& recipe);

/// Returns the sum of a[k] b[k] over `size` terms. This defines the results of
/// oracle/dot_panel.h, which computes many dots at once. Products and partial
/// sums are exact in double up to 2^-53 relative, far below FP32's noise.
///
/// bound: gamma_K * sum |a b|, K = size. A term takes part in at most K
/// roundings. This holds for any order (reversed, split, a tree over segments),
/// and if products are rounded by themselves.
///
/// noise: the root of the sum of squares of the roundings of the FP32 chain in
/// ascending order. If K roundings at the largest term are more, they count
/// instead, since an order may begin with this term. The noise is 0 if all sums
/// fit in any order, as those of MX products often do.
Estimate Dot(const float* a, const float* b, size_t size, size_t a_stride = 1,
             size_t b_stride = 1);

/// Does what Dot does with all b[k] = 1.
Estimate Sum(const float* values, size_t size, size_t stride = 1);

}  // namespace isoloss::oracle
