// On a device products have the bits of kernels::GemmScalar, and nothing beside
// their results is written.
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executors.h"
#include "isoloss/base/error.h"
#include "isoloss/device/prepare_kernels.h"
#include "isoloss/formats/e4m3.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/prepare.h"
#include "kernels/quantized_gemm_cases.h"
#include "products.h"

namespace isoloss::device::gemm_forms_test {
namespace {

using formats::Quantization;
using formats::QuantizationByName;
using kernels::Contraction;
using kernels::GemmProblem;
using kernels::Operand;
using kernels::Rounding;
using kernels::Values;

TEST(GemmForms, ChainsOfAllShapes) {
  const Quantization mx = QuantizationByName("e4m3.rceil");
  for (const size_t rows : {1, 31, 33, 129}) {
    for (const size_t cols : {1, 40, 127}) {
      for (const size_t depth : {0, 1, 15, 17, 100}) {
        SCOPED_TRACE(testing::Message() << rows << " " << cols << " " << depth);
        TestMatrices matrices;
        std::vector<GemmProblem> problems;
        for (const Contraction a : kSides) {
          for (const Contraction b : kSides) {
            GemmProblem& problem = problems.emplace_back();
            problem.a = MakeOperand(matrices, rows, depth, a, Values::kWild);
            problem.b = MakeOperand(matrices, cols, depth, b, Values::kWild);
            problem.c = matrices.Make(rows, cols, Values::kBf16);
            if (a != b) continue;
            problem.rounding = Rounding::kBf16;
            problem.a.quantization = &mx;
          }
        }
        ExpectTheBitsOfTheHost(matrices, problems);
      }
    }
  }
}

/// Products of one shape so large, or so many, that tiles are of each shape.
TEST(GemmForms, TilesOfAllSizes) {
  for (const size_t count : {1, 2, 7, 16}) {
    for (const size_t interval : {0, 24}) {
      TestMatrices matrices;
      std::vector<GemmProblem> problems;
      for (size_t i = 0; i < count; ++i) {
        GemmProblem& problem = problems.emplace_back();
        problem.a =
            MakeOperand(matrices, 500, 20, kSides[i % 2], Values::kFp32);
        problem.b =
            MakeOperand(matrices, 510, 20, kSides[i / 2 % 2], Values::kFp32);
        problem.c = matrices.Make(500, 510, Values::kBf16);
        problem.accumulation.interval = interval;
      }
      ExpectTheBitsOfTheHost(matrices, problems);
    }
  }
}

TEST(GemmForms, QuantisedOperandsAndOtherSums) {
  for (const kernels::QuantizedCase& of : kernels::QuantizedCases()) {
    const kernels::Accumulator* const accumulator = of.accumulation.accumulator;
    if (accumulator != nullptr && !AddAs(*accumulator)) continue;
    ExpectTheBitsOfTheHost(of, {1, 40, 150});
  }
}

TEST(GemmForms, CellsOfAllExtents) {
  for (const char* name :
       {"e4m3.te.fp32.1x128", "e4m3.deepgemm.fp32.128x128", "e4m3.te.pow2.3x5",
        "e4m3.te.fp32.0x24", "e5m2.te.e4m3.40x0", "e3m2.even.32x32",
        "e2m1.torchao.e4m3.1x16.two_level.te", "e4m3.rceil.64x48.toward_zero",
        "e4m3.rceil.te", "e5m2.none", "tf32.none.hadamard16"}) {
    SCOPED_TRACE(name);
    const Quantization quantization = QuantizationByName(name);
    for (const Values kind : {Values::kFp32, Values::kWild}) {
      TestMatrices matrices;
      std::vector<GemmProblem> problems;
      for (const Contraction side : kSides) {
        GemmProblem& problem = problems.emplace_back();
        problem.a = MakeOperand(matrices, 133, 270, side, kind);
        problem.b = MakeOperand(matrices, 70, 270, side, kind);
        problem.a.quantization = problem.b.quantization = &quantization;
        problem.c = matrices.Make(133, 70, kind);
      }
      ExpectTheBitsOfTheHost(matrices, problems);
    }
  }
}

TEST(GemmForms, WhatWasQuantisedBefore) {
  const kernels::OperandState state = kernels::NonTrivialState(1);
  const kernels::OperandState state_before = kernels::NonTrivialState(5);
  for (const char* name :
       {"e4m3.rceil", "e4m3.te.fp32.0x0.stochastic8", "nvfp4",
        "e4m3.deepgemm.fp32.1x128", "e4m3.rceil.hadamard16_random"}) {
    SCOPED_TRACE(name);
    const Quantization before = QuantizationByName(name);
    const Quantization after = QuantizationByName("e4m3.rceil.stochastic16");
    const std::vector<size_t> ends = {30, 30, 64};
    for (const Values kind : {Values::kFp32, Values::kWild}) {
      TestMatrices matrices;
      std::vector<GemmProblem> problems;
      for (const Contraction side : kSides) {
        for (const Quantization* quantization :
             {&after, static_cast<const Quantization*>(nullptr)}) {
          GemmProblem& problem = problems.emplace_back();
          problem.a = MakeOperand(matrices, 64, 64, side, kind);
          problem.a.quantization = quantization;
          problem.a.state = &state;
          problem.a.before = &before;
          problem.a.state_before = &state_before;
          problem.a.rounding = Rounding::kBf16;
          problem.b = MakeOperand(matrices, 20, 64, side, Values::kFp32);
          problem.c = matrices.Make(64, 20, Values::kBf16);
          if (side == Contraction::kColumns && quantization != nullptr) {
            problem.a.tensor_ends = ends;
          } else {
            problem.segment_ends = ends;
          }
        }
      }
      ExpectTheBitsOfTheHost(matrices, problems);
    }
  }
}

/// A task computes one segment, some of them if there are many, and all of them
/// if there are many products.
TEST(GemmForms, SegmentsGoUpTheTree) {
  struct Batch {
    size_t segments;
    size_t products;
  };
  for (const Batch batch : {Batch{2, 1}, Batch{7, 1}, Batch{40, 1},
                            Batch{9001, 1}, Batch{2, 1100}, Batch{13, 1100}}) {
    for (const Rounding outer : {Rounding::kFp32, Rounding::kBf16}) {
      SCOPED_TRACE(testing::Message()
                   << batch.segments << " of " << batch.products);
      TestMatrices matrices;
      std::vector<size_t> ends;
      for (size_t i = 0; i < batch.segments; ++i) {
        ends.push_back(i / 2 * 3 + i % 2);  // every other one is shorter
      }
      const auto make = [&](size_t rows) {
        return MakeOperand(matrices, rows, ends.back(), Contraction::kRows,
                           Values::kFp32);
      };
      const Operand a = make(9);
      const Operand b = make(7 * batch.products);
      const MatrixView<float> c =
          matrices.Make(9, 7 * batch.products, Values::kBf16);
      std::vector<GemmProblem> problems;
      for (size_t i = 0; i < batch.products; ++i) {
        GemmProblem& problem = problems.emplace_back();
        problem.a = a;
        problem.b = b;
        problem.b.values = b.values.Cols(7 * i, 7);
        problem.c = c.Cols(7 * i, 7);
        problem.segment_ends = ends;
        problem.accumulation.outer = outer;
        problem.addend = problem.c;
      }
      ExpectTheBitsOfTheHost(matrices, problems);
    }
  }
}

TEST(GemmForms, PartsOfMatricesAndSharedOperands) {
  const Quantization mx = QuantizationByName("e4m3.rceil");
  const Quantization wide = QuantizationByName("e5m2.rceil");
  const std::vector<size_t> two = {40, 100};
  const std::vector<size_t> three = {7, 64, 100};
  TestMatrices matrices;
  const MatrixView<float> x = matrices.Make(120, 150, Values::kFp32);
  const MatrixView<float> y = matrices.Make(120, 150, Values::kFp32);
  std::vector<GemmProblem> problems;
  for (const size_t offset : {0, 1, 4}) {
    const auto part = [offset](MatrixView<float> of, size_t rows, size_t cols) {
      return of.Rows(offset, rows).Cols(offset, cols);
    };
    for (const Contraction side : kSides) {
      for (const Quantization* quantization :
           {static_cast<const Quantization*>(nullptr), &mx, &wide}) {
        for (const std::vector<size_t>* ends : {&two, &three}) {
          const bool columns = side == Contraction::kColumns;
          GemmProblem& problem = problems.emplace_back();
          problem.a = {
              .values = part(x, columns ? 60 : 100, columns ? 100 : 60),
              .contraction = side,
              .quantization = quantization};
          problem.b = problem.a;
          problem.b.values = part(y, columns ? 33 : 100, columns ? 100 : 33);
          problem.b.rounding = Rounding::kBf16;
          problem.c = part(matrices.Make(70, 40, Values::kBf16), 60, 33);
          problem.segment_ends = *ends;
          if (quantization == nullptr) continue;
          problems.push_back(problem);
          problems.back().c =
              part(matrices.Make(70, 40, Values::kBf16), 60, 33);
          problems.back().accumulation.accumulator =
              &kernels::AccumulatorByName("blackwell_f25");
        }
      }
    }
  }
  ExpectTheBitsOfTheHost(matrices, problems);
}

/// A chain of -0 is +0 - 0, but a step too many would show in sums of -0.
TEST(GemmForms, MissingStepsAndRowsAddNothing) {
  TestMatrices matrices;
  std::vector<GemmProblem> problems;
  for (const size_t depth : {1, 3, 18}) {
    GemmProblem& problem = problems.emplace_back();
    problem.a =
        MakeOperand(matrices, 5, depth, Contraction::kColumns, Values::kBf16);
    problem.b =
        MakeOperand(matrices, 6, depth, Contraction::kRows, Values::kBf16);
    const MatrixView<float> addend = matrices.Make(5, 6, Values::kBf16);
    for (size_t i = 0; i < 6; ++i) addend(4, i) = -0.0f;
    problem.addend = addend;
    problem.c = matrices.Make(5, 6, Values::kBf16);
  }
  problems.push_back({.a = {}, .b = {}, .c = {}});
  ExpectTheBitsOfTheHost(matrices, problems);
}

TEST(GemmForms, ShapesAreChecked) {
  for (const NamedExecutor& device : DeviceExecutors()) {
    Matrix<float> values(device.executor->memory());
    values.Resize(4, 4);
    const GemmProblem problem{.a = {values.view()},
                              .b = {values.cview().Cols(0, 3)},
                              .c = values.view()};
    EXPECT_THROW(kernels::GemmBatch({&problem, 1}, *device.executor), Error);
  }
}

TEST(GemmFormsDeathTest, PackedOperandsAreRefused) {
  const auto device = DeviceExecutors().front();
  Matrix<float> values(device.executor->memory());
  values.Resize(4, 4);
  const Matrix<float> host(4, 4);
  kernels::PackedOperand packed;
  packed.Pack({host.view()});
  const GemmProblem problem{
      .a = {values.view()}, .c = values.view(), .packed_b = &packed};
  EXPECT_DEATH(kernels::GemmBatch({&problem, 1}, *device.executor), "packed_b");
}

/// All sign, exponent and upper mantissa bits, with lower bits that decide
/// ties.
TEST(RoundToE4m3, IsThatOfTheFormat) {
  for (uint32_t upper = 0; upper <= 0xFFFF; ++upper) {
    for (const uint32_t lower : {0x0000, 0x0001, 0x8000, 0xFFFF}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      ASSERT_EQ(std::bit_cast<uint32_t>(RoundToE4m3(value)),
                std::bit_cast<uint32_t>(formats::RoundToFormat(
                    formats::kE4m3Format, value, formats::Overflow::kSaturate)))
          << value;
    }
  }
}

/// Tensors that are quantised in place.
TEST(QuantizeTensorsForm, HasTheBitsOfDequantize) {
  std::vector<Quantization> quantizations;
  for (const kernels::QuantizedCase& of : kernels::QuantizedCases()) {
    quantizations.push_back(of.a);
    quantizations.push_back(of.b);
  }
  formats::TensorState state = kernels::NonTrivialState(3).common;
  for (const Values kind : {Values::kFp32, Values::kWild}) {
    TestMatrices matrices;
    std::vector<kernels::TensorToQuantize> tensors;
    for (const Quantization& quantization : quantizations) {
      const MatrixView<float> tensor =
          matrices.Make(70, 200, kind).Rows(3, 50).Cols(1, 176);
      ++state.stream;
      tensors.push_back({tensor, &quantization, state});
    }
    const Quantization nvfp4 = QuantizationByName("nvfp4");
    const MatrixView<float> large = matrices.Make(1100, 1008, Values::kBf16);
    large(0, 0) = 5;
    tensors.push_back({large, &nvfp4, state});
    const auto quantize = [&](Executor& executor) {
      TestMatrices::Copy copy(matrices, executor.memory());
      std::vector<kernels::TensorToQuantize> here = tensors;
      for (auto& of : here) of.tensor = copy.View(of.tensor);
      kernels::QuantizeTensors(here, executor);
      return copy.OnHost();
    };
    TestMatrices::Copy expected(matrices, kHostMemory);
    for (const auto& [tensor, quantization, of_tensor] : tensors) {
      const MatrixView<float> to = expected.View(tensor);
      const Matrix<float> values = formats::Dequantize(
          formats::Quantize(to, *quantization, of_tensor), *quantization);
      for (size_t i = 0; i < to.rows(); ++i) {
        for (size_t j = 0; j < to.cols(); ++j) to(i, j) = values(i, j);
      }
    }
    Executor host(2);
    EXPECT_TRUE(SameMatrices(quantize(host), expected.OnHost()));
    for (const NamedExecutor& device : DeviceExecutors()) {
      EXPECT_TRUE(SameMatrices(quantize(*device.executor), expected.OnHost()))
          << device.name;
    }
  }
}

}  // namespace
}  // namespace isoloss::device::gemm_forms_test
