// Which operation adds error, and which only passes it on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::compare {

/// What one operation makes of the difference between two runs. Errors are
/// ||a - b|| / ||a|| of a tensor (RelativeL2).
struct OperationError {
  std::string result;               ///< tensor that it computes
  std::vector<std::string> inputs;  ///< the first 16 that it is held against
  int64_t order = 0;                ///< of the result
  double error = 0;
  double input_error = 0;  ///< the largest of all inputs'
  /// error / input_error; infinity if only the input error is 0, 1 if both are.
  double growth = 1;
  /// sqrt(max(0, error^2 - input_error^2)): what independent errors of the
  /// inputs do not explain.
  double added = 0;
};

/// Tensors of one MoE layer that no row can be compared of.
struct LeftOut {
  std::string module;  ///< "layers.1.moe"
  std::string reason;
  /// Rows of experts too, not only the slots' weights. What the choice itself
  /// adds then shows where rows return to tokens: in routed_experts_output and
  /// the router's gate_gradient.
  bool rows = true;
};

struct ErrorGrowth {
  /// Forward and backward, descending `added`, NaN first.
  std::vector<OperationError> operations;
  /// Updates and parameters, likewise: of their own, because a first step of
  /// Adam is almost the gradient's sign, which any error can flip.
  std::vector<OperationError> optimizer;
  /// The first in the order of computation whose inputs are equal and whose
  /// result is not. One of the optimizer's only if all before it is equal.
  std::optional<OperationError> first_source;
  std::vector<LeftOut> left_out;
  /// Why there is none of all that; "" if there is. Two models, or versions of
  /// one, compute tensors in two ways.
  std::string unmeasured;
};

/// Every common tensor of equal shape but weights, as the result of an
/// operation whose inputs the graph, which must be that of both, tells. For an
/// input that the dumps do not hold stand the inputs of the operation behind
/// it, and so on; if there is none of these either the operation is left out.
/// Weights that the dumps do not hold are passed over.
///
/// Special  Where routing differs, rows of routed experts belong to other
///          tokens in A and B: their tensors, the experts' weight gradients and
///          the router's topk_weights are in left_out, and for them stand the
///          inputs of the operations behind them. Routing differs if the
///          layer's expert_ids do (of an order of slots only, only
///          topk_weights are left out); in dumps without it, if segments or the
///          number of rows of the experts' tensors do.
/// Cost     O(elements + tensors and inputs of the graph).
ErrorGrowth MeasureErrorGrowth(const runlog::TensorDump& a,
                               const runlog::TensorDump& b);

}  // namespace isoloss::compare
