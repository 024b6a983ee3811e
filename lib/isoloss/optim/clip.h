// Computes the factor that clips by the global norm of the gradient.
#pragma once

#include <span>

#include "isoloss/base/threads.h"
#include "isoloss/optim/tensor.h"

namespace isoloss::optim {

/// Returns the square root of the gradients' kernels::SumOfSquares, added over
/// the tensors. The sum follows the aligned tree over the tensors' order, in
/// FP64.
/// Special  NaN or infinite exactly if some gradient value is; the caller logs
///          it as it is.
double GlobalNorm(std::span<const Tensor> tensors, ThreadTeam& team);
/// Computes the same norm from each tensor's sum of squares, in the tensors'
/// order.
double GlobalNorm(std::span<const double> squares);

/// Returns min(1, max_norm / (norm + 1e-6)), by which every gradient is
/// multiplied.
/// Special  NaN if `norm` is NaN, so that it reaches the weights and is seen.
/// Source   torch.nn.utils.clip_grad_norm_; docs/model.md, section 11.
double ClipCoefficient(double norm, double max_norm);

}  // namespace isoloss::optim
