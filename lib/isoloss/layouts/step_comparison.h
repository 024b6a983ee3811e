// Compares one step of two layouts in the order of computation.
#pragma once

#include "isoloss/layouts/batch.h"
#include "isoloss/layouts/comparison.h"
#include "isoloss/layouts/judge.h"

namespace isoloss::layouts {

/// Adds the step's tensors to the result: forward, backward, then updates.
void CompareStep(const Batch& a, const Batch& b, const CheckedSide& side_a,
                 const CheckedSide& side_b, Carry& carry,
                 LayoutsComparison& result);

}  // namespace isoloss::layouts
