// Sums gradients of weights over ranks and micro-batches, and compares them
// with those that the optimizer read.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/layouts/batch.h"
#include "isoloss/layouts/mistakes.h"

namespace isoloss::layouts {

/// Returns the sum of `grad_weight` over the pieces, each divided by its
/// factor. Experts of several ranks stand below each other.
Matrix<float> SumOfGradients(
    const Batch& batch, const OperationKey& key,
    const std::function<double(size_t piece)>& factor_of);

/// How an optimizer's gradient follows from the recorded ones.
struct Reduction {
  OperationKey update;  ///< of the parameter
  OperationKey linear;
  FactorFit fit = {};  ///< of the gradient by the sum
  /// Roundings of the parts and of their sums leave this much.
  double bound = 0.0;
  Mistake mistake = {};  ///< if the fit leaves more than the bound
};

/// Returns the reductions of all linear modules whose update is recorded.
/// Tensors that no mistake explains have a mistake without name.
std::vector<Reduction> ReductionsOf(const Batch& batch);

}  // namespace isoloss::layouts
