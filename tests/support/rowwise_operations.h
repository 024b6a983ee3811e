// Row-wise operations on problems of all kinds, and their scalar definitions:
// tests compare the two on each target and each device.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/memory.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels::rowwise_operations {

/// What the inputs look like.
enum class Values {
  kOrdinary,      ///< uniform in [-4, 4)
  kAnyMagnitude,  ///< random signs, exponents and mantissas, subnormals, zeros
  kNonFinite,     ///< ordinary, and one in 64 is NaN, an infinity or -0
};

struct Problem {
  size_t rows;
  size_t cols;
  Rounding rounding;
  Values values;
  Memory* memory = &kHostMemory;  ///< of the matrices
};

/// Everything an operation wrote.
using Outputs = std::vector<std::vector<float>>;

/// An operation on a problem; without an executor, by its scalar definition.
struct Operation {
  const char* name;
  std::function<Outputs(const Problem&, Executor*)> run;
};

/// Returns the operations of rowwise.h.
const std::vector<Operation>& All();

/// Widths around the vector lengths with every number of rows around the leaf
/// length; the last two are cut into several tasks.
std::vector<std::pair<size_t, size_t>> Extents();

/// Expects that an operation on an executor gives the bits of its definition,
/// for all kinds of values and roundings, any NaN being equal to any other.
void ExpectDefinedBits(const Operation& operation, size_t rows, size_t cols,
                       Executor& executor);

}  // namespace isoloss::kernels::rowwise_operations
