// Products that tests of devices compare with those of the host.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "executors.h"
#include "host_and_device.h"
#include "isoloss/kernels/gemm.h"
#include "kernels/gemm_cases.h"
#include "kernels/quantized_gemm_cases.h"

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

/// Compares products along rows, with segments, and along columns, with tensors
/// and an addend.
inline void ExpectTheBitsOfTheHost(const kernels::QuantizedCase& of,
                                   std::initializer_list<size_t> depths) {
  SCOPED_TRACE(of.name);
  const kernels::OperandState left = kernels::NonTrivialState(1);
  const kernels::OperandState right = kernels::NonTrivialState(2);
  for (const auto kind : {kernels::Values::kBf16, kernels::Values::kWild}) {
    for (const size_t depth : depths) {
      TestMatrices matrices;
      const std::vector<size_t> segments = {0, depth / 3, depth / 3, depth};
      const std::vector<size_t> tensors = {20, 20, 50, 70};
      std::vector<kernels::GemmProblem> problems;
      for (const kernels::Contraction side : kSides) {
        kernels::GemmProblem& problem = problems.emplace_back();
        problem.a = MakeOperand(matrices, 70, depth, side, kind);
        problem.a.quantization = &of.a;
        problem.a.state = &left;
        problem.b = MakeOperand(matrices, 37, depth, side, kind);
        problem.b.quantization = &of.b;
        problem.b.state = &right;
        problem.c = matrices.Make(70, 37, kind);
        problem.accumulation = of.accumulation;
        if (side == kernels::Contraction::kRows) {
          problem.segment_ends = segments;
          problem.a.rounding = kernels::Rounding::kBf16;
        } else {
          problem.a.tensor_ends = tensors;
          problem.addend = problem.c;
          problem.rounding = kernels::Rounding::kBf16;
        }
      }
      ExpectTheBitsOfTheHost(matrices, problems);
    }
  }
}

}  // namespace isoloss::device
