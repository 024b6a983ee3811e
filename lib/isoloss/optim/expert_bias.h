// Balances load without an auxiliary loss: each expert's routing bias moves
// against its load.
#pragma once

#include <cstdint>
#include <span>

namespace isoloss::optim {

/// With n_e = tokens_per_expert[e] and E experts,
///   d_e = rate * sign(mean(n) - n_e),   sign(0) = 0,
///   bias_e <- bias_e + (d_e - mean(d)).
/// Subtracting mean(d) keeps the sum of the biases. The sign compares n_e * E
/// with the sum of n in integers, so it is exact. mean(d) is computed from the
/// integer sum of the signs, the rest in FP32. Call the function once per
/// optimizer step and MoE layer, with the counts of the whole step, before the
/// optimizer.
///
/// Shapes   tokens_per_expert, bias [E].
/// Errors   ShapeError if the lengths differ.
/// Source   torchtitan's load-balancing hook; docs/model.md, section 11.
void UpdateExpertBias(std::span<const int64_t> tokens_per_expert, float rate,
                      std::span<float> bias);

}  // namespace isoloss::optim
