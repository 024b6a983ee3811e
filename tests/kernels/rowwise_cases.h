// Helpers of the tests that say what row-wise operations compute.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/targets.h"

namespace isoloss::kernels {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
/// Half an ulp of 1: one FP32 rounding is off by at most u, relative.
inline constexpr double kU = 0x1p-24;

/// A view of the elements as `rows` equal rows.
template <typename T>
MatrixView<T> Rows(std::vector<T>& values, size_t rows) {
  return {values.data(), rows, values.size() / rows};
}

/// Uniform in [-scale, scale).
inline std::vector<float> Uniform(size_t count, uint64_t stream,
                                  double scale = 1) {
  const CounterRng rng(3, stream);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((2 * rng.Uniform(i) - 1) * scale);
  }
  return values;
}

/// Runs the scalar definitions; rowwise_target_test shows that every other
/// target equals them.
class ScalarTest : public testing::Test {
 protected:
  ScalarTest() { ForceTarget("scalar"); }
  ~ScalarTest() override { ForceTarget(""); }

  Executor executor_{1};
};

}  // namespace isoloss::kernels
