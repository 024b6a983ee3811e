// Engines that compute some products otherwise than the recipe says.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "isoloss/kernels/gemm.h"
#include "isoloss/model/gemm_engine.h"

namespace isoloss::step_checks {

/// Computes the quantised products of one role as `edit` makes of them what
/// they are.
inline model::GemmEngine Wrong(
    precision::GemmRole role,
    std::function<void(const model::GemmTask&, kernels::GemmProblem&)> edit) {
  return [role, edit = std::move(edit)](std::span<const model::GemmTask> tasks,
                                        Executor& executor) {
    std::vector<kernels::GemmProblem> problems;
    for (const model::GemmTask& task : tasks) {
      kernels::GemmProblem& problem = problems.emplace_back(task.problem);
      if (task.role != role || problem.a.quantization == nullptr) continue;
      edit(task, problem);
    }
    kernels::GemmBatch(problems, executor);
  };
}

}  // namespace isoloss::step_checks
