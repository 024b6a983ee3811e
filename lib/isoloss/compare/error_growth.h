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
  std::vector<std::string> inputs;  ///< tensors that it is held against
  int64_t order = 0;                ///< of the result
  double error = 0;
  double input_error = 0;  ///< the largest of the inputs'; 0 without inputs
  /// error / input_error; infinity if only the input error is 0, 1 if both are.
  double growth = 1;
  /// sqrt(max(0, error^2 - input_error^2)): what independent errors of the
  /// inputs do not explain.
  double added = 0;
};

struct ErrorGrowth {
  std::vector<OperationError> operations;  ///< descending `added`, NaN first
  /// The first in the order of computation whose inputs are equal and whose
  /// result is not.
  std::optional<OperationError> first_source;
};

/// Every common tensor of equal shape but weights, as the result of an
/// operation with these inputs, as far as the dumps hold them:
///   output of a GEMM   its activation and weight
///   dgrad              its gradient and weight
///   wgrad              its gradient and activation
///   any other          activation, gradient, output of another module,
///                      parameter, update: the tensors of the same phase, but
///                      weights, from the first one in the enclosing module
///                      ("layers.0" encloses "layers.0.ffn") up to the result;
///                      if there is none, the nearest tensor before it that is
///                      no weight. An output's module may have a weight too.
/// A GEMM whose activation or gradient is not in the dumps counts as any other.
///
/// Special  where routing differs, rows of routed experts belong to other
///          tokens in A and B: their errors are of that, not of rounding.
ErrorGrowth MeasureErrorGrowth(const runlog::TensorDump& a,
                               const runlog::TensorDump& b);

}  // namespace isoloss::compare
