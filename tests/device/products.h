// Products that tests of devices compare with those of the host.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "executors.h"
#include "host_and_device.h"
#include "isoloss/kernels/gemm.h"
#include "kernels/gemm_cases.h"

namespace isoloss::device {

/// Compares all matrices after the products of a batch.
inline void ExpectTheBitsOfTheHost(
    const TestMatrices& matrices,
    const std::vector<kernels::GemmProblem>& problems) {
  TestMatrices::Copy host(matrices, kHostMemory);
  for (const kernels::GemmProblem& problem : problems) {
    kernels::GemmScalar(host.View(problem));
  }
  for (const NamedExecutor& device : DeviceExecutors()) {
    TestMatrices::Copy copy(matrices, device.executor->memory());
    std::vector<kernels::GemmProblem> on_device;
    for (const kernels::GemmProblem& problem : problems) {
      on_device.push_back(copy.View(problem));
    }
    kernels::GemmBatch(on_device, *device.executor);
    EXPECT_TRUE(SameMatrices(copy.OnHost(), host.OnHost())) << device.name;
  }
}

/// Makes an operand of so many rows and steps.
inline kernels::Operand MakeOperand(TestMatrices& matrices, size_t extent,
                                    size_t depth, kernels::Contraction side,
                                    kernels::Values kind) {
  const bool columns = side == kernels::Contraction::kColumns;
  return {.values = matrices.Make(columns ? extent : depth,
                                  columns ? depth : extent, kind),
          .contraction = side};
}

inline constexpr kernels::Contraction kSides[] = {
    kernels::Contraction::kColumns, kernels::Contraction::kRows};

}  // namespace isoloss::device
