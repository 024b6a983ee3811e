// Finds the parameters and tensors in which two runs differ most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// A quantity of a parameter or tensor has this largest difference.
struct LargestDifference {
  std::string name;
  std::string quantity;  ///< "grad_norm", "l2_norm", …
  int64_t step = 0;
  double a = 0;
  double b = 0;
  /// relative = |a - b| / max(|a|, |b|), at most 2; infinity if one of them is
  /// NaN or they are different infinities.
  double relative = 0;
};

/// Returns the `top` largest differences over the steps that both logs have,
/// descending: grad_norm and update_ratio of each parameter.
std::vector<LargestDifference> LargestParameterDifferences(
    const runlog::RunLog& a, const runlog::RunLog& b, size_t top);

/// Returns the same for l2_norm, cur_amax and std of each tensor at steps where
/// both logs have its statistics.
std::vector<LargestDifference> LargestTensorDifferences(const runlog::RunLog& a,
                                                        const runlog::RunLog& b,
                                                        size_t top);

}  // namespace isoloss::compare
