// Products of operands that are quantised as wholes, and sums that are no FP32
// chains.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "quantized_gemm_cases.h"

namespace isoloss::kernels::gemm_quantized_test {
namespace {

using formats::Quantization;
using formats::QuantizationByName;

class GemmQuantizedOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmQuantizedOn,
                         testing::ValuesIn(SupportedTargets()), TargetTestName);

TEST_P(GemmQuantizedOn, HasTheBitsOfTheDefinition) {
  const OperandState left = NonTrivialState(1);
  const OperandState right = NonTrivialState(2);
  for (const QuantizedCase& of : QuantizedCases()) {
    SCOPED_TRACE(of.name);
    for (const Values kind : {Values::kBf16, Values::kWild}) {
      for (const size_t depth : {1, 40, 96}) {
        for (const bool along_rows : {false, true}) {
          const size_t m = 70;
          const size_t n = 37;
          const Matrix<float> a = along_rows ? Filled(depth, m, kind, 1)
                                             : Filled(m, depth, kind, 1);
          const Matrix<float> b = along_rows ? Filled(depth, n, kind, 2)
                                             : Filled(n, depth, kind, 2);
          const std::vector<size_t> segments = {depth / 3, depth / 3, depth};
          const std::vector<size_t> tensors = {20, 20, 50, m};
          const auto side =
              along_rows ? Contraction::kRows : Contraction::kColumns;
          Matrix<float> c(m, n);
          const Matrix<float> addend = Filled(m, n, Values::kBf16, 3);
          GemmProblem problem{
              .a = {a.view(), side, &of.a, {}, &left},
              .b = {b.view(), side, &of.b, {}, &right},
              .c = c.view(),
              .rounding = along_rows ? Rounding::kFp32 : Rounding::kBf16,
              .accumulation = of.accumulation};
          if (along_rows) {
            problem.segment_ends = segments;
          } else {
            problem.a.tensor_ends = tensors;
            problem.addend = addend.view();
          }

          EXPECT_TRUE(EqualsScalar(problem)) << depth << along_rows;
        }
      }
    }
  }
}

TEST_P(GemmQuantizedOn, APackedSideAndABatchOfThreadsGiveTheSameBits) {
  const OperandState left = NonTrivialState(1);
  const OperandState right = NonTrivialState(2);
  const Matrix<float> a = Filled(130, 64, Values::kBf16, 1);
  const Matrix<float> b = Filled(48, 64, Values::kBf16, 2);
  for (const QuantizedCase& of : QuantizedCases()) {
    SCOPED_TRACE(of.name);
    Matrix<float> expected(130, 48);
    GemmProblem problem{
        .a = {a.view(), Contraction::kColumns, &of.a, {}, &left},
        .b = {b.view(), Contraction::kColumns, &of.b, {}, &right},
        .c = expected.view(),
        .accumulation = of.accumulation};
    GemmScalar(problem);
    PackedOperand packed;
    packed.Pack(problem.b, &of.a, of.accumulation);
    for (const int threads : {1, 3}) {
      Executor executor(threads);
      std::vector<Matrix<float>> c(3);
      std::vector<GemmProblem> batch(3, problem);
      for (size_t i = 0; i < batch.size(); ++i) {
        c[i].Resize(130, 48);
        batch[i].c = c[i].view();
      }
      batch[1].packed_b = &packed;
      batch[1].b = {};
      batch[2].a.quantization = batch[2].b.quantization = nullptr;
      batch[2].accumulation = {};

      GemmBatch(batch, executor);

      EXPECT_TRUE(SameResults(c[0].view(), expected.view()));
      EXPECT_TRUE(SameResults(c[1].view(), expected.view()));
      problem.c = c[0].view();
      GemmProblem plain = batch[2];
      plain.c = c[0].view();
      GemmScalar(plain);
      EXPECT_TRUE(SameResults(c[2].view(), c[0].view()));
    }
  }
}

Matrix<float> RoundedToBf16(const Matrix<float>& values) {
  Matrix<float> result(values.rows(), values.cols());
  for (size_t i = 0; i < values.size(); ++i) {
    result.data()[i] = formats::RoundToBf16(values.data()[i]);
  }
  return result;
}

TEST_P(GemmQuantizedOn, OperandsThatItRoundsGiveTheBitsOfRoundedOnes) {
  const OperandState left = NonTrivialState(1);
  const OperandState right = NonTrivialState(2);
  const Quantization mx = QuantizationByName("e4m3.rceil");
  std::vector<QuantizedCase> cases = QuantizedCases();
  cases.push_back({"mx", mx, mx});
  const QuantizedCase plain{"plain", {}, {}};
  cases.push_back(plain);
  for (const QuantizedCase& of : cases) {
    SCOPED_TRACE(of.name);
    const bool quantised = std::string(of.name) != plain.name;
    for (const Values kind : {Values::kFp32, Values::kWild}) {
      for (const auto side : {Contraction::kColumns, Contraction::kRows}) {
        const bool rows = side == Contraction::kColumns;
        const size_t m = 90;  // more tiles than read a panel in place
        const size_t n = 64;
        const size_t depth = 70;
        const Matrix<float> a =
            rows ? Filled(m, depth, kind, 1) : Filled(depth, m, kind, 1);
        const Matrix<float> b =
            rows ? Filled(n, depth, kind, 2) : Filled(depth, n, kind, 2);
        const Matrix<float> rounded_a = RoundedToBf16(a);
        const Matrix<float> rounded_b = RoundedToBf16(b);
        Matrix<float> expected(m, n);
        GemmProblem problem{.a = {rounded_a.view(),
                                  side,
                                  quantised ? &of.a : nullptr,
                                  {},
                                  &left},
                            .b = {rounded_b.view(),
                                  side,
                                  quantised ? &of.b : nullptr,
                                  {},
                                  &right},
                            .c = expected.view(),
                            .accumulation = of.accumulation};
        GemmScalar(problem);
        Matrix<float> c(m, n);
        problem.c = c.view();
        problem.b.values = b.view();
        problem.b.rounding = Rounding::kBf16;
        for (const size_t few : {m, size_t{20}}) {
          GemmProblem some = problem;
          some.a.values = rows ? rounded_a.view().Rows(0, few)
                               : rounded_a.view().Cols(0, few);
          some.c = c.view().Rows(0, few);
          if (few < m && quantised) continue;  // other scales
          EXPECT_TRUE(EqualsScalar(some));
          EXPECT_TRUE(SameResults(some.c, expected.view().Rows(0, few)));
        }
        problem.a.values = a.view();
        problem.a.rounding = Rounding::kBf16;
        EXPECT_TRUE(EqualsScalar(problem));
        EXPECT_TRUE(SameResults(c.view(), expected.view()));

        PackedOperand packed;
        packed.Pack(problem.b, problem.a.quantization, of.accumulation);
        problem.b = {};
        problem.packed_b = &packed;
        EXPECT_THROW(Gemm(problem), Error);
        problem.a.values = rounded_a.view();
        problem.a.rounding = Rounding::kFp32;
        EXPECT_TRUE(EqualsScalar(problem));
        EXPECT_TRUE(SameResults(c.view(), expected.view()));
      }
    }
  }
}

TEST_P(GemmQuantizedOn, WhatWasDoneBeforeIsDoneToRoundedValues) {
  const Quantization mx = QuantizationByName("e4m3.rceil");
  const Matrix<float> a = Filled(64, 30, Values::kFp32, 1);
  const Matrix<float> b = Filled(64, 20, Values::kBf16, 2);
  const Matrix<float> rounded = RoundedToBf16(a);
  Matrix<float> expected(30, 20);
  GemmProblem problem{
      .a = {.values = rounded.view(),
            .contraction = Contraction::kRows,
            .quantization = &mx,
            .before = &mx},
      .b = {.values = b.view(), .contraction = Contraction::kRows},
      .c = expected.view()};
  GemmScalar(problem);
  Matrix<float> c(30, 20);
  problem.c = c.view();
  problem.a.values = a.view();
  problem.a.rounding = Rounding::kBf16;

  EXPECT_TRUE(EqualsScalar(problem));
  EXPECT_TRUE(SameResults(c.view(), expected.view()));
}

/// One row times one row, by the definition.
float Dot(std::vector<float> a, const Quantization* of_a, std::vector<float> b,
          const Quantization* of_b, const Accumulation& accumulation = {},
          std::vector<size_t> segment_ends = {}) {
  float result = std::nanf("");
  GemmScalar({.a = {{a.data(), 1, a.size()}, Contraction::kColumns, of_a},
              .b = {{b.data(), 1, b.size()}, Contraction::kColumns, of_b},
              .c = {&result, 1, 1},
              .accumulation = accumulation,
              .segment_ends = segment_ends});
  return result;
}

TEST(GemmQuantized, ScalesMultiplyTheSumsOfCodes) {
  // 3 = 448 * fl(3 / 448): codes 448 and, of 1, fl(fl(448 / 3)) = 149.33, which
  // is 144. A scale folded into the operand would give fl(144 s) + fl(448 s).
  const Quantization tensor = QuantizationByName("e4m3.te.fp32.0x0");
  const float decode = 1 / (448.0f / 3);
  EXPECT_EQ(Dot({1, 3}, &tensor, {1, 1}, nullptr), (144 + 448) * decode);
}

TEST(GemmQuantized, PiecesBeginAnewAndAreAddedInOrder) {
  const float big = 0x1p24f;
  // In one chain each 1 is lost; pieces of two are 2^24 and 2.
  EXPECT_EQ(Dot({big, 1, 1, 1}, nullptr, {1, 1, 1, 1}, nullptr), big);
  EXPECT_EQ(
      Dot({big, 1, 1, 1}, nullptr, {1, 1, 1, 1}, nullptr, {.interval = 2}),
      big + 2);
  // An interval of three: (2^24 + 1 + 1) + 1.
  EXPECT_EQ(
      Dot({big, 1, 1, 1}, nullptr, {1, 1, 1, 1}, nullptr, {.interval = 3}),
      big);
  // Segments begin anew: 2^24 | 1 + 1 | 1.
  EXPECT_EQ(Dot({big, 1, 1, 1}, nullptr, {1, 1, 1, 1}, nullptr, {.interval = 3},
                {1, 4}),
            big + 4);
  // Of a BF16 sum: 256 + 1 is a tie that goes to the even 256.
  EXPECT_EQ(Dot({256, 1, 1}, nullptr, {1, 1, 1}, nullptr,
                {.interval = 1, .outer = Rounding::kBf16}),
            256.0f);
}

TEST(GemmQuantized, PiecesMustFitEachOther) {
  const Quantization of_12 = QuantizationByName("e4m3.te.fp32.1x12");
  const Quantization of_16 = QuantizationByName("e4m3.te.fp32.1x16");
  const Quantization rotated = QuantizationByName("e4m3.rceil.hadamard16");
  EXPECT_THROW(Dot({1, 2}, &of_12, {1, 2}, &of_16), Error);
  EXPECT_THROW(Dot({1, 2}, &of_16, {1, 2}, nullptr, {.interval = 24}), Error);
  EXPECT_THROW(Dot({1, 2}, &rotated, {1, 2}, nullptr), Error);
  EXPECT_NO_THROW(Dot({1, 2}, &of_16, {1, 2}, nullptr, {.interval = 32}));
}

TEST(GemmQuantized, ATransformOfBothSidesKeepsTheProduct) {
  const Quantization rotated = QuantizationByName("tf32.none.hadamard16");
  std::vector<float> a(20);
  std::vector<float> b(20);
  float expected = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 5) - 2;
    b[i] = static_cast<float>(i % 3) - 1;
    expected += a[i] * b[i];
  }
  // Small integers times 1/4 have few bits, so that nothing is rounded.
  EXPECT_EQ(Dot(a, &rotated, b, &rotated), expected);
}

}  // namespace
}  // namespace isoloss::kernels::gemm_quantized_test
