// Compares one step of two layouts in the order of computation.
#pragma once

#include <string>
#include <vector>

#include "isoloss/layouts/batch.h"
#include "isoloss/layouts/comparison.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::layouts {

/// What the oracle found on one side, each operation by its own inputs.
struct CheckedSide {
  const char* name;  ///< "A" or "B"
  const Recording& recording;
  const operations::ModuleChoices& modules;
  const precision::Recipe& recipe;
  /// These have elements that no order of sums explains.
  std::vector<operations::Finding> wrong;
};

/// The differences that are known so far.
struct Levels {
  double relative = 0.0;  ///< largest of a whole tensor
  double row = 0.0;       ///< largest of one row
};

/// Goes from step to step.
struct Carry {
  bool is_first_step = true;
  double parameters = 0.0;  ///< largest difference after the last step
};

/// A difference may grow by this factor from what was recorded before to what
/// an operation reads.
///
/// Source   Between two recorded operations lie a residual connection, a norm,
///          and an activation or attention. Relative differences grow in these
///          by at most sqrt(2) (a sum of unrelated terms), 2 (a norm removes
///          the mean and divides) and 3 (x sigmoid(x) times a gate): 8 in all.
///          Their own roundings, up to 16 with independent errors, are as large
///          as 4 units. Softmax grows differences more if logits are large, so
///          that a factor of 2 is left for it.
inline constexpr double kLargestGrowth = 16.0;

void CompareStep(const Batch& a, const Batch& b, const CheckedSide& side_a,
                 const CheckedSide& side_b, Carry& carry,
                 LayoutsComparison& result);

}  // namespace isoloss::layouts
