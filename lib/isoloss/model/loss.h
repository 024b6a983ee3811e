// Sums of the cross-entropy over the labels that count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isoloss::model {

/// Number of labels other than kernels::kIgnoredLabel.
size_t CountedLabels(std::span<const int32_t> labels);

/// Sum of token losses: leaves of kernels::kTokenLeaf tokens (ascending, FP64)
/// go up the aligned tree in FP64. Ignored tokens hold 0.
double LossSum(std::span<const float> token_losses);

}  // namespace isoloss::model
