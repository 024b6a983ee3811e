// The fast kernels share two things with the definition: its argument checks,
// and its packing of an operand that gains nothing from a layout.
#pragma once

#include <cstddef>
#include <span>

#include "isoloss/kernels/gemm.h"

namespace isoloss::kernels {

/// Checks the shapes of a product.
/// Errors   ShapeError as GemmProblem states it.
void CheckGemmProblem(const GemmProblem& problem);

/// Ends of the segments, with "empty means one" resolved: `whole` is storage
/// for that one end.
std::span<const size_t> SegmentEnds(const GemmProblem& problem, size_t* whole);

/// Operand row `row`, quantised in one segment; `to` has room for its depth.
void PackRowScalar(const Operand& operand, size_t row, float* to);

}  // namespace isoloss::kernels
