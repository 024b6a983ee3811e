// Shows which operation adds error, and which only passes it on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::compare {

/// One operation changes the difference between two runs. Errors are ||a - b||
/// / ||a|| of a tensor (RelativeL2).
struct OperationError {
  std::string result;               ///< tensor that it computes
  std::vector<std::string> inputs;  ///< the first 16 with which it is compared
  int64_t order = 0;                ///< of the result
  double error = 0;
  double input_error = 0;  ///< the largest error of an input
  /// growth = error / input_error; infinity if only the input error is 0, 1 if
  /// both are.
  double growth = 1;
  /// added = sqrt(max(0, error^2 - input_error^2)), which independent errors of
  /// the inputs do not explain.
  double added = 0;
};

/// Rows of these tensors of one MoE layer can't be compared.
struct LeftOut {
  std::string module;  ///< "layers.1.moe"
  std::string reason;
  /// Rows of experts are left out, too, not only the slots' weights. What the
  /// choice itself adds then shows where rows return to tokens: in
  /// routed_experts_output and the router's gate_gradient.
  bool rows = true;
};

struct ErrorGrowth {
  /// Forward and backward operations, which have descending `added`, NaN first.
  std::vector<OperationError> operations;
  /// Updates and parameters are in the same order. They are apart, since a
  /// first step of Adam is almost the gradient's sign, which any error can
  /// flip.
  std::vector<OperationError> optimizer;
  /// The first operation in the order of computation whose inputs are equal and
  /// whose result is not. An operation of the optimizer counts only if
  /// everything before it is equal.
  std::optional<OperationError> first_source;
  std::vector<LeftOut> left_out;
  /// Says why nothing was measured; "" if it was. Two models, or versions of
  /// one, compute tensors in two ways.
  std::string unmeasured;
};

/// Measures every common tensor of equal shape, except weights, as the result
/// of an operation. Its inputs are those of the graph, which both runs must
/// share. If the dumps do not hold an input, the inputs of the operation that
/// computes it take its place, and so on. If there is none of these either, the
/// operation is left out. Weights that the dumps do not hold are passed over.
///
/// Special  If routing differs, rows of routed experts belong to different
///          tokens in A and B. The experts' tensors and weight gradients and
///          the router's topk_weights are then in left_out; the inputs of the
///          operations that compute them take their place. Routing differs if
///          the layer's expert_ids do (if only the order of slots differs, only
///          topk_weights are left out); in dumps without them, if segments or
///          the number of rows of the experts' tensors do.
/// Cost     O(elements + tensors and inputs of the graph).
ErrorGrowth MeasureErrorGrowth(const runlog::TensorDump& a,
                               const runlog::TensorDump& b);

}  // namespace isoloss::compare
