// Defines the function that computes the products of a model's linear layers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// Holds one product and says which product of the model it is.
struct GemmTask {
  kernels::GemmProblem problem;
  std::string_view site;
  precision::GemmRole role = precision::GemmRole::kFprop;
  /// Chooses one of the site's stacked weights: the expert, counted from this
  /// process's first expert. It is 0 at a site without experts.
  size_t group = 0;
};

/// Computes independent products, as kernels::GemmBatch does by default. An
/// engine changes neither the resolved recipe nor the count of quantised
/// products.
using GemmEngine =
    std::function<void(std::span<const GemmTask> tasks, Executor& executor)>;

}  // namespace isoloss::model
