// Fast kernels take two things from the definition: its argument checks, and
// its packing of an operand that gains nothing from a layout.
#pragma once

#include <cstddef>
#include <span>

#include "isoloss/kernels/gemm.h"

namespace isoloss::kernels {

/// Requires that the shapes of a product fit.
/// Errors   ShapeError as GemmProblem states it.
void CheckGemmProblem(const GemmProblem& problem);

/// Returns the ends of the segments. Empty ends mean one segment, whose end is
/// then stored in `whole`.
std::span<const size_t> SegmentEnds(const GemmProblem& problem, size_t* whole);

/// Packs operand row `row`, quantised in one segment; `to` has room for its
/// depth.
void PackRowScalar(const Operand& operand, size_t row, float* to);

}  // namespace isoloss::kernels
