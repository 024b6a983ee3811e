// Who computes the products of a model's linear layers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// One product, and which one of the model it is.
struct GemmTask {
  kernels::GemmProblem problem;
  std::string_view site;
  precision::GemmRole role = precision::GemmRole::kFprop;
  /// Which of the site's stacked weights: expert, counted from this process's
  /// first; 0 elsewhere.
  size_t group = 0;
};

/// Computes independent products, as kernels::GemmBatch does by default. What a
/// recipe resolved to and how many products count as quantised is settled
/// before an engine sees them.
using GemmEngine =
    std::function<void(std::span<const GemmTask> tasks, Executor& executor)>;

}  // namespace isoloss::model
