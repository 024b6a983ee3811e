// Clipping by the global norm of the gradient.
#pragma once

#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/optim/tensor.h"

namespace isoloss::optim {

/// sqrt of the sum over tensors of kernels::SumOfSquares of their gradients,
/// added up the aligned tree over the tensors' order, in FP64.
/// Special  NaN or infinite exactly if some gradient value is; the caller logs
///          it as it is.
double GlobalNorm(std::span<const Tensor> tensors, Executor& executor);
/// The same from each tensor's sum of squares, in the tensors' order.
double GlobalNorm(std::span<const double> squares);

/// min(1, max_norm / (norm + 1e-6)): what every gradient is multiplied by.
/// Special  NaN if `norm` is NaN, so that it reaches the weights and is seen.
/// Source   torch.nn.utils.clip_grad_norm_; docs/model.md, section 11.
double ClipCoefficient(double norm, double max_norm);

}  // namespace isoloss::optim
