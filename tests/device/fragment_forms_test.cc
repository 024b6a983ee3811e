// Products by accumulators of tensor cores have the bits of
// kernels::GemmScalar, and nothing beside their results is written.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "executors.h"
#include "host_and_device.h"
#include "isoloss/device/cuda/tensor_cores.h"
#include "isoloss/device/fragment_tiles.h"
#include "isoloss/device/fragments.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/gemm.h"
#include "kernels/quantized_gemm_cases.h"
#include "products.h"

namespace isoloss::device::fragment_forms_test {
namespace {

using formats::Quantization;
using formats::QuantizationByName;
using kernels::Accumulation;
using kernels::Contraction;
using kernels::GemmProblem;
using kernels::Operand;
using kernels::Rounding;
using kernels::Values;

const kernels::Accumulator& Hopper() {
  return kernels::AccumulatorByName("hopper_bf16");
}

const kernels::Accumulator& Ampere() {
  return kernels::AccumulatorByName("ampere_bf16");
}

class FragmentForms : public testing::Test {
 protected:
  void SetUp() override {
    if (!AddAs(own())) GTEST_SKIP() << "nobody has told how this GPU adds";
  }
  /// Returns the accumulator of the device.
  static const kernels::Accumulator& own() {
    return AddAs(Hopper()) ? Hopper() : Ampere();
  }
};

TEST_F(FragmentForms, SumsOfAllShapes) {
  const Quantization mx = QuantizationByName("e4m3.rceil");
  for (const size_t rows : {1, 17, 33, 129}) {
    for (const size_t cols : {1, 40, 127}) {
      for (const size_t depth : {0, 1, 15, 16, 17, 32, 33, 100, 161}) {
        SCOPED_TRACE(testing::Message() << rows << " " << cols << " " << depth);
        TestMatrices matrices;
        std::vector<GemmProblem> problems;
        for (const Contraction a : kSides) {
          for (const Contraction b : kSides) {
            GemmProblem& problem = problems.emplace_back();
            problem.a = MakeOperand(matrices, rows, depth, a, Values::kWild);
            problem.b = MakeOperand(matrices, cols, depth, b, Values::kFp32);
            problem.c = matrices.Make(rows, cols, Values::kBf16);
            problem.accumulation = {&own()};
            if (a != b) continue;
            problem.rounding = Rounding::kBf16;
            problem.addend = problem.c;
            problem.b.quantization = &mx;
          }
        }
        ExpectTheBitsOfTheHost(matrices, problems);
      }
    }
  }
}

/// So many products of one shape that tiles are of each of the larger shapes.
TEST_F(FragmentForms, TilesOfAllSizes) {
  struct Batch {
    size_t products;
    size_t interval;
  };
  for (const Batch batch :
       {Batch{1, 0}, Batch{5, 0}, Batch{5, 32}, Batch{9, 0}}) {
    TestMatrices matrices;
    std::vector<GemmProblem> problems;
    for (size_t i = 0; i < batch.products; ++i) {
      GemmProblem& problem = problems.emplace_back();
      problem.a = MakeOperand(matrices, 500, 40, kSides[i % 2], Values::kFp32);
      problem.b =
          MakeOperand(matrices, 516, 40, kSides[i / 2 % 2], Values::kFp32);
      problem.c = matrices.Make(500, 516, Values::kBf16);
      problem.accumulation = {&own(), batch.interval};
      problem.rounding = i % 2 == 0 ? Rounding::kBf16 : Rounding::kFp32;
    }
    ExpectTheBitsOfTheHost(matrices, problems);
  }
}

std::vector<kernels::QuantizedCase> OperandCases() {
  const auto of = [](const char* a, const char* b,
                     const Accumulation& accumulation) {
    return kernels::QuantizedCase{a, QuantizationByName(a),
                                  QuantizationByName(b), accumulation};
  };
  return {
      of("e4m3.rceil", "e5m2.rceil", {&Hopper()}),
      of("e4m3.rceil.stochastic16", "e2m1.floor", {&Ampere(), 64}),
      of("e4m3.te.fp32.0x0", "e4m3.torchao.fp32.1x0", {&Hopper()}),
      of("e4m3.te.fp32.0x0.delayed.history4", "e5m2.none", {&Ampere()}),
      of("e4m3.deepgemm.fp32.1x128", "e4m3.deepgemm.fp32.128x128", {&Hopper()}),
      of("e4m3.deepgemm.fp32.1x16", "e4m3.deepgemm.fp32.16x32",
         {&Hopper(), 16}),
      of("e4m3.te.fp32.0x24", "e4m3.te.fp32.3x24", {&Hopper(), 72}),
      of("e4m3.te.fp32.1x33", "e4m3.te.fp32.1x33", {&Ampere(), 33}),
      of("nvfp4", "e2m1.te.e4m3.16x16.two_level", {&Hopper(), 48}),
      of("e4m3.rceil.hadamard16_random", "e4m3.rceil.hadamard16_random",
         {&Hopper(), 32, Rounding::kBf16}),
  };
}

TEST_F(FragmentForms, QuantisedOperandsPiecesAndSegments) {
  for (const kernels::QuantizedCase& of : OperandCases()) {
    if (!AddAs(*of.accumulation.accumulator)) continue;
    ExpectTheBitsOfTheHost(of, {1, 40, 300});
  }
}

/// A task computes one segment, some of them if there are many, and all of them
/// if there are many products.
TEST_F(FragmentForms, SegmentsGoUpTheTree) {
  struct Batch {
    size_t segments;
    size_t products;
  };
  for (const Batch batch :
       {Batch{2, 1}, Batch{7, 1}, Batch{3001, 1}, Batch{13, 300}}) {
    for (const size_t interval : {0, 40}) {
      SCOPED_TRACE(testing::Message()
                   << batch.segments << " of " << batch.products);
      TestMatrices matrices;
      std::vector<size_t> ends;
      for (size_t i = 0; i < batch.segments; ++i) {
        ends.push_back(i / 3 * 50 + i % 3 * 3);  // of 0, 3 and 47 steps
      }
      ends.front() = 0;
      const auto make = [&](size_t rows) {
        return MakeOperand(matrices, rows, ends.back(), Contraction::kRows,
                           Values::kFp32);
      };
      const Operand a = make(9);
      const Operand b = make(2 * batch.products);
      const MatrixView<float> c =
          matrices.Make(9, 2 * batch.products, Values::kBf16);
      std::vector<GemmProblem> problems;
      for (size_t i = 0; i < batch.products; ++i) {
        GemmProblem& problem = problems.emplace_back();
        problem.a = a;
        problem.b = b;
        problem.b.values = b.values.Cols(2 * i, 2);
        problem.c = c.Cols(2 * i, 2);
        problem.segment_ends = ends;
        problem.accumulation = {&own(), interval};
        problem.addend = problem.c;
      }
      ExpectTheBitsOfTheHost(matrices, problems);
    }
  }
}

/// Parts of matrices, operands that were quantised before, and operands that
/// are shared with other accumulators and with chains.
TEST_F(FragmentForms, PartsOfMatricesAndSharedOperands) {
  const kernels::OperandState state = kernels::NonTrivialState(5);
  const Quantization before = QuantizationByName("e4m3.te.fp32.0x0");
  const Quantization mx = QuantizationByName("e4m3.rceil");
  const std::vector<size_t> ends = {7, 64, 100};
  TestMatrices matrices;
  const MatrixView<float> x = matrices.Make(120, 150, Values::kFp32);
  const MatrixView<float> y = matrices.Make(120, 150, Values::kFp32);
  std::vector<GemmProblem> problems;
  for (const size_t offset : {0, 1}) {
    const auto part = [offset](MatrixView<float> of, size_t rows, size_t cols) {
      return of.Rows(offset, rows).Cols(offset, cols);
    };
    for (const Contraction side : kSides) {
      for (const char* accumulator :
           {"", "hopper_bf16", "ampere_bf16", "cdna3_bf16", "blackwell_f25"}) {
        const std::string name = accumulator;
        if (!name.empty() && !AddAs(kernels::AccumulatorByName(name))) continue;
        const bool columns = side == Contraction::kColumns;
        GemmProblem& problem = problems.emplace_back();
        problem.a = {.values = part(x, columns ? 60 : 100, columns ? 100 : 60),
                     .contraction = side,
                     .quantization = &mx};
        problem.b = problem.a;
        problem.b.values = part(y, columns ? 33 : 100, columns ? 100 : 33);
        problem.b.before = &before;
        problem.b.state_before = &state;
        problem.c = part(matrices.Make(70, 40, Values::kBf16), 60, 33);
        problem.segment_ends = ends;
        if (!name.empty()) {
          problem.accumulation = {&kernels::AccumulatorByName(name)};
        }
      }
    }
  }
  ExpectTheBitsOfTheHost(matrices, problems);
}

/// Steps that fill up a piece have factors of zero. They must not raise the
/// exponent that terms are aligned to, not even beside the largest factors, and
/// must leave a sum as it is.
TEST_F(FragmentForms, MissingStepsAddNothing) {
  TestMatrices matrices;
  std::vector<GemmProblem> problems;
  for (const size_t depth : {1, 2, 3, 18}) {
    GemmProblem& problem = problems.emplace_back();
    const MatrixView<float> a = matrices.Make(6, depth, Values::kBf16);
    const MatrixView<float> b = matrices.Make(5, depth, Values::kBf16);
    const float scales[] = {1, 0x1p120f, 0x1p-63f, 0x1p-126f, -0.0f};
    for (size_t k = 0; k < depth; ++k) {
      for (size_t i = 0; i < 5; ++i) a(i, k) *= scales[i];
      for (size_t j = 0; j < 5; ++j) b(j, k) *= scales[j];
    }
    problem.a = {.values = a};
    problem.b = {.values = b};
    problem.c = matrices.Make(6, 5, Values::kBf16);
    problem.accumulation = {&own()};
  }
  ExpectTheBitsOfTheHost(matrices, problems);
}

/// Section "Matrix Fragments for mma.m16n8k16 with floating point type" of the
/// PTX ISA says where element i of a thread lies.
TEST(FragmentLane, IsThatOfThePtxIsa) {
  for (uint32_t thread = 0; thread < 2 * kWarp; ++thread) {
    const uint32_t group = thread % 32 >> 2;
    const uint32_t in_group = thread % 4;
    const FragmentLane lane(thread);
    for (uint32_t i = 0; i < 8; i += 2) {  // elements of a, two in a word
      EXPECT_EQ(lane.RowOfA(i / 2),
                i < 2 || (i >= 4 && i < 6) ? group : group + 8);
      EXPECT_EQ(lane.StepOfA(i / 2), i < 4 ? in_group * 2 : in_group * 2 + 8);
    }
    for (uint32_t i = 0; i < 4; i += 2) {  // elements of b
      EXPECT_EQ(lane.row, group);
      EXPECT_EQ(lane.StepOfB(i / 2), i < 2 ? in_group * 2 : in_group * 2 + 8);
    }
    EXPECT_EQ(lane.pair, in_group);
  }
}

/// Words in one bank are read, or written, one after the other.
TEST(Slab, HasNoTwoWordsOfAnAccessInOneBank) {
  constexpr uint32_t kBanks = 32;
  const auto bank = [](uint32_t row, uint32_t chunk, uint32_t word) {
    return (row * kSlabWords + WordOfChunk(row, chunk) + word) % kBanks;
  };
  for (uint32_t first = 0; first < 256; first += 8) {  // of 8 threads that copy
    std::set<uint32_t> banks;
    for (uint32_t thread = first; thread < first + 8; ++thread) {
      for (uint32_t word = 0; word < kQuad; ++word) {
        banks.insert(bank(thread / kChunks, thread % kChunks, word));
      }
    }
    EXPECT_EQ(banks.size(), kBanks) << first;
  }
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    std::set<uint32_t> banks;
    for (uint32_t thread = 0; thread < kWarp; ++thread) {
      const FragmentLane lane(thread);
      banks.insert(bank(lane.row, chunk, lane.pair));
    }
    EXPECT_EQ(banks.size(), kBanks) << chunk;
  }
}

TEST(TensorCores, OtherAccumulatorsAreRefusedByName) {
  EXPECT_EQ(WrongAdder("H200", 9, 0, Hopper()), "");
  EXPECT_EQ(WrongAdder("B200", 10, 0, Hopper()), "");
  EXPECT_EQ(WrongAdder("A100", 8, 0, Ampere()), "");
  EXPECT_EQ(WrongAdder("A100", 8, 0, Hopper()),
            "A100 has compute capability 8.0, whose tensor cores add as "
            "`ampere_bf16` does, but sums of the recipe are those of "
            "`hopper_bf16`. Take a GPU of compute capability 9.0 or 10.x, or "
            "run on the CPU.");
  EXPECT_EQ(WrongAdder("RTX 5090", 12, 0, Ampere()),
            "RTX 5090 has compute capability 12.0, whose tensor cores add in a "
            "way that isoloss does not know, but sums of the recipe are those "
            "of `ampere_bf16`. Take a GPU of compute capability 8.x, or run on "
            "the CPU.");
}

}  // namespace
}  // namespace isoloss::device::fragment_forms_test
