#include "isoloss/kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::kernels::gemm_test {
namespace {

constexpr Contraction kBothContractions[] = {Contraction::kColumns,
                                             Contraction::kRows};

/// Values of an operand with `extent` rows of length `depth`.
Matrix<float> OperandValues(size_t extent, size_t depth, Contraction side,
                            Values kind, uint64_t stream) {
  return side == Contraction::kColumns ? Filled(extent, depth, kind, stream)
                                       : Filled(depth, extent, kind, stream);
}

/// One row times one row by the definition.
float ScalarDot(std::vector<float> a, std::vector<float> b,
                std::vector<size_t> segment_ends = {},
                const formats::Quantization* mx = nullptr,
                Rounding rounding = Rounding::kFp32) {
  float result = std::nanf("");
  GemmProblem problem;
  problem.a = {{a.data(), 1, a.size()}, Contraction::kColumns, mx};
  problem.b = {{b.data(), 1, b.size()}, Contraction::kColumns, nullptr};
  problem.c = {&result, 1, 1};
  problem.rounding = rounding;
  problem.segment_ends = segment_ends;
  GemmScalar(problem);
  return result;
}

TEST(GemmScalar, MultipliesRowsOfAByRowsOfB) {
  // The same 2x3 and 2x3 operands, stored either way.
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> a_transposed = {1, 4, 2, 5, 3, 6};
  const std::vector<float> b = {1, 0, -1, 2, 10, 100};
  const std::vector<float> b_transposed = {1, 2, 0, 10, -1, 100};
  Matrix<float> c(2, 2);
  GemmProblem problem;
  problem.c = c.view();

  for (const Contraction a_side : kBothContractions) {
    for (const Contraction b_side : kBothContractions) {
      const bool a_columns = a_side == Contraction::kColumns;
      const bool b_columns = b_side == Contraction::kColumns;
      problem.a.values =
          a_columns ? MatrixView<const float>(a.data(), 2, 3)
                    : MatrixView<const float>(a_transposed.data(), 3, 2);
      problem.b.values =
          b_columns ? MatrixView<const float>(b.data(), 2, 3)
                    : MatrixView<const float>(b_transposed.data(), 3, 2);
      problem.a.contraction = a_side;
      problem.b.contraction = b_side;
      c.SetZero();

      GemmScalar(problem);

      EXPECT_EQ(c(0, 0), -2.0f);
      EXPECT_EQ(c(0, 1), 322.0f);
      EXPECT_EQ(c(1, 0), -2.0f);
      EXPECT_EQ(c(1, 1), 658.0f);
    }
  }
}

TEST(GemmScalar, AddsInAscendingOrderWithFusedMultiplyAdds) {
  const float big = 0x1p24f;
  const float e = 0x1p-12f;

  // 2^24 + 1 is a tie that goes to the even 2^24.
  EXPECT_EQ(ScalarDot({big, 1, 1}, {1, 1, 1}), big);
  EXPECT_EQ(ScalarDot({1, 1, big}, {1, 1, 1}), big + 2);
  // (1 + e)^2 = 1 + 2e + e^2; a product rounded first would lose e^2.
  EXPECT_EQ(ScalarDot({-(1 + 2 * e), 1 + e}, {1, 1 + e}), e * e);
}

TEST(GemmScalar, FoldsSegmentsUpTheAlignedTree) {
  const float big = 0x1p24f;

  // (2^24 + 1) + (1 + 1), (2^24 + (1 + 1)) and ((2^24 + 1) + 1).
  EXPECT_EQ(ScalarDot({big, 1, 1, 1}, {1, 1, 1, 1}, {1, 2, 3, 4}), big + 2);
  EXPECT_EQ(ScalarDot({big, 1, 1}, {1, 1, 1}, {1, 3}), big + 2);
  EXPECT_EQ(ScalarDot({big, 1, 1}, {1, 1, 1}, {1, 2, 3}), big);
  // An empty segment is a leaf of its own: (2^24 + 0) + (1 + 1).
  EXPECT_EQ(ScalarDot({big, 1, 1}, {1, 1, 1}, {1, 1, 2, 3}), big + 2);
}

TEST(GemmScalar, RoundsTheResultOnce) {
  // 1 + 2^-8 is half a BF16 step above 1: to the even 1. One FP32 step more
  // rounds up.
  const float tie = 1 + 0x1p-8f;
  const float above = 1 + 0x1p-8f + 0x1p-23f;

  EXPECT_EQ(ScalarDot({tie}, {1}, {}, nullptr, Rounding::kBf16), 1.0f);
  EXPECT_EQ(ScalarDot({above}, {1}, {}, nullptr, Rounding::kBf16), 1 + 0x1p-7f);
  EXPECT_EQ(ScalarDot({above}, {1}), above);
}

TEST(GemmScalar, StartsMxBlocksAnewInEverySegment) {
  const formats::Quantization e4m3{&formats::FormatByName("e4m3")};

  // Beside 448 (scale 1) the quantum is 2^-9, so that 2^-12 vanishes; in a
  // block of its own it is exact.
  EXPECT_EQ(ScalarDot({448, 0x1p-12f}, {0, 1}, {}, &e4m3), 0.0f);
  EXPECT_EQ(ScalarDot({448, 0x1p-12f}, {0, 1}, {1, 2}, &e4m3), 0x1p-12f);
}

TEST(Gemm, RejectsOperandsThatDoNotFit) {
  const Matrix<float> a(3, 5);
  const Matrix<float> b(4, 5);
  Matrix<float> c(3, 4);
  const size_t short_ends[] = {2, 4};
  const size_t falling_ends[] = {4, 2, 5};
  GemmProblem good;
  good.a.values = a.view();
  good.b.values = b.view();
  good.c = c.view();
  std::vector<GemmProblem> bad(5, good);
  bad[0].a.contraction = Contraction::kRows;
  bad[1].b.values = bad[1].b.values.Rows(0, 3);
  bad[2].c = bad[2].c.Rows(0, 2);
  bad[3].segment_ends = short_ends;
  bad[4].segment_ends = falling_ends;
  Executor executor(2);

  EXPECT_NO_THROW(Gemm(good));
  for (const GemmProblem& problem : bad) {
    const GemmProblem batch[] = {good, problem};
    EXPECT_THROW(GemmScalar(problem), Error);
    EXPECT_THROW(Gemm(problem), Error);
    EXPECT_THROW(GemmBatch(batch, executor), Error);
  }
}

class GemmOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmOn, testing::ValuesIn(SupportedTargets()),
                         TargetTestName);

TEST_P(GemmOn, EqualsScalarOnAwkwardShapes) {
  const std::vector<size_t> extents = {0,  1,  2,  3,  7,  13,  17, 31,
                                       32, 33, 63, 64, 65, 100, 127};
  for (const size_t m : extents) {
    for (const size_t n : extents) {
      for (const size_t k : extents) {
        const Matrix<float> a = Filled(m, k, Values::kFp32, 1);
        const Matrix<float> b = Filled(n, k, Values::kFp32, 2);
        Matrix<float> c(m, n);
        GemmProblem problem;
        problem.a.values = a.view();
        problem.b.values = b.view();
        problem.c = c.view();

        ASSERT_TRUE(EqualsScalar(problem)) << m << "x" << n << "x" << k;
      }
    }
  }
}

TEST_P(GemmOn, EqualsScalarForEveryContractionQuantisationAndRounding) {
  const formats::Quantization e4m3{&formats::FormatByName("e4m3")};
  const formats::Quantization e5m2{&formats::FormatByName("e5m2"),
                                   formats::ScaleRule::kFloor};
  for (const Values kind : {Values::kBf16, Values::kFp32, Values::kWild}) {
    for (const size_t m : {1, 5, 19, 64}) {
      for (const size_t n : {3, 16, 37, 64}) {
        for (const size_t k : {1, 31, 45, 97}) {
          for (int variant = 0; variant < 32; ++variant) {
            GemmProblem problem;
            problem.a.contraction = kBothContractions[variant & 1];
            problem.b.contraction = kBothContractions[variant >> 1 & 1];
            if ((variant & 4) != 0) problem.a.quantization = &e4m3;
            if ((variant & 8) != 0) problem.b.quantization = &e5m2;
            if ((variant & 16) != 0) problem.rounding = Rounding::kBf16;
            const Matrix<float> a =
                OperandValues(m, k, problem.a.contraction, kind, 1);
            const Matrix<float> b =
                OperandValues(n, k, problem.b.contraction, kind, 2);
            Matrix<float> c(m, n);
            problem.a.values = a.view();
            problem.b.values = b.view();
            problem.c = c.view();

            ASSERT_TRUE(EqualsScalar(problem))
                << m << "x" << n << "x" << k << ", variant " << variant;
          }
        }
      }
    }
  }
}

TEST_P(GemmOn, ReadsAndWritesOnlyItsWindowsOfStridedMatrices) {
  for (const size_t offset : {0, 1, 3, 17}) {
    for (const Contraction side : kBothContractions) {
      const size_t m = 29, n = 43, k = 51;
      const bool columns = side == Contraction::kColumns;
      StridedMatrix a(columns ? m : k, columns ? k : m, offset, 5);
      StridedMatrix b(columns ? n : k, columns ? k : n, offset, 2);
      StridedMatrix c(m, n, offset, 7);
      // What surrounds the operands would show: NaN.
      for (StridedMatrix* matrix : {&a, &b}) {
        std::fill_n(matrix->memory().data(), matrix->memory().size(),
                    std::nanf(""));
      }
      std::fill_n(c.memory().data(), c.memory().size(), 7.0f);
      Fill(a.view(), Values::kFp32, 1);
      Fill(b.view(), Values::kFp32, 2);
      GemmProblem problem;
      problem.a = {a.view(), side, nullptr};
      problem.b = {b.view(), side, nullptr};
      problem.c = c.view();

      ASSERT_TRUE(EqualsScalar(problem)) << "offset " << offset;

      for (size_t i = 0; i < m; ++i) {
        for (size_t j = 0; j < c.memory().cols(); ++j) {
          if (c.IsOutside(j)) {
            ASSERT_EQ(c.memory()(i, j), 7.0f);
          } else {
            ASSERT_FALSE(std::isnan(c.memory()(i, j)));
          }
        }
      }
    }
  }
}

TEST_P(GemmOn, EqualsScalarOnSegments) {
  const formats::Quantization e4m3{&formats::FormatByName("e4m3")};
  std::vector<size_t> ones;
  for (size_t end = 1; end <= 150; ++end) ones.push_back(end);
  const std::vector<std::vector<size_t>> segmentations = {
      {},
      {150},
      {1, 150},
      {32, 64, 96, 128, 150},
      {7, 150},
      {33, 50, 150},
      {10, 20, 30, 40, 50, 60, 150},
      ones,
      {0, 0, 77, 150},
      {75, 75, 150, 150, 150}};
  for (const std::vector<size_t>& ends : segmentations) {
    for (const size_t m : {1, 14, 33}) {
      for (const size_t n : {5, 32, 45}) {
        for (const formats::Quantization* mx :
             {static_cast<const formats::Quantization*>(nullptr), &e4m3}) {
          const Matrix<float> a =
              OperandValues(m, 150, Contraction::kRows, Values::kFp32, 1);
          const Matrix<float> b =
              OperandValues(n, 150, Contraction::kRows, Values::kFp32, 2);
          Matrix<float> c(m, n);
          GemmProblem problem;
          problem.a = {a.view(), Contraction::kRows, mx};
          problem.b = {b.view(), Contraction::kRows, mx};
          problem.c = c.view();
          problem.segment_ends = ends;

          for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
            problem.rounding = rounding;
            ASSERT_TRUE(EqualsScalar(problem))
                << m << "x" << n << ", " << ends.size() << " segments";
          }
        }
      }
    }
  }
}

TEST_P(GemmOn, GivesPositiveZeroForNoDepth) {
  const Matrix<float> a(3, 0);
  const Matrix<float> b(20, 0);
  const size_t no_steps[] = {0, 0};
  Matrix<float> c(3, 20);
  GemmProblem problem;
  problem.a.values = a.view();
  problem.b.values = b.view();
  problem.c = c.view();

  for (const std::span<const size_t> ends :
       {std::span<const size_t>(), std::span<const size_t>(no_steps)}) {
    problem.segment_ends = ends;
    std::fill_n(c.data(), c.size(), -1.0f);

    Gemm(problem);

    for (size_t i = 0; i < c.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(c.data()[i]), 0u);
    }
  }
}

TEST_P(GemmOn, EqualsScalarWhenPanelsExceedTheBlockSizes) {
  // Row panels of 14 x 9,000 floats exceed a strip, and four panels of b the
  // column block: several passes over both.
  const Matrix<float> a = Filled(31, 9'000, Values::kBf16, 1);
  const Matrix<float> b = Filled(9'000, 160, Values::kBf16, 2);
  Matrix<float> c(31, 160);
  GemmProblem problem;
  problem.a.values = a.view();
  problem.b = {b.view(), Contraction::kRows, nullptr};
  problem.c = c.view();

  EXPECT_TRUE(EqualsScalar(problem));
}

TEST_P(GemmOn, DoesNotDependOnTheTeam) {
  struct Shape {
    size_t m, n, k;
  };
  // One that is cut by rows, one by columns, small ones, empty ones.
  const std::vector<Shape> shapes = {
      {517, 96, 200}, {96, 515, 200}, {5, 7, 9},    {0, 64, 32},
      {64, 0, 32},    {64, 64, 0},    {1, 300, 33}, {128, 64, 64}};
  const formats::Quantization e4m3{&formats::FormatByName("e4m3")};
  std::vector<Matrix<float>> storage;
  std::vector<GemmProblem> problems;
  std::vector<Matrix<float>> results;
  std::vector<Matrix<float>> expected;
  for (const Shape& shape : shapes) {
    storage.push_back(Filled(shape.k, shape.m, Values::kFp32, 1));
    storage.push_back(Filled(shape.n, shape.k, Values::kFp32, 2));
    results.emplace_back(shape.m, shape.n);
    expected.emplace_back(shape.m, shape.n);
    GemmProblem& problem = problems.emplace_back();
    problem.a = {storage[storage.size() - 2].view(), Contraction::kRows, &e4m3};
    problem.b.values = storage.back().view();
    problem.c = expected.back().view();
    GemmScalar(problem);
    problem.c = results.back().view();
  }

  for (const int threads : {1, 2, 3}) {
    Executor executor(threads);
    for (Matrix<float>& result : results) {
      std::fill_n(result.data(), result.size(), std::nanf(""));
    }
    GemmBatch(problems, executor);
    for (size_t i = 0; i < problems.size(); ++i) {
      EXPECT_TRUE(SameResults(results[i].view(), expected[i].view()))
          << "problem " << i << ", " << threads << " threads";
    }

    for (size_t i = 0; i < 2; ++i) {
      std::fill_n(results[i].data(), results[i].size(), std::nanf(""));
      GemmBatch({&problems[i], 1}, executor);
      EXPECT_TRUE(SameResults(results[i].view(), expected[i].view()))
          << "problem " << i << " alone, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace isoloss::kernels::gemm_test
