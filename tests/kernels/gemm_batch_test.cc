// Packed operands, addends, and batches whose products share operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/gemm.h"

namespace isoloss::kernels::gemm_batch_test {
namespace {

const formats::Quantization& E4m3() {
  static const formats::Quantization spec{&formats::FormatByName("e4m3")};
  return spec;
}

class GemmBatchOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmBatchOn,
                         testing::ValuesIn(SupportedTargets()), TargetTestName);

TEST_P(GemmBatchOn, APackedSideGivesTheSameBits) {
  for (const size_t m : {1, 14, 50}) {
    for (const size_t n : {1, 16, 45, 70}) {
      for (const size_t k : {1, 33, 96}) {
        for (const Contraction side :
             {Contraction::kColumns, Contraction::kRows}) {
          for (const formats::Quantization* mx :
               {static_cast<const formats::Quantization*>(nullptr), &E4m3()}) {
            const bool columns = side == Contraction::kColumns;
            const Matrix<float> a = Filled(m, k, Values::kWild, 1);
            const Matrix<float> b =
                Filled(columns ? n : k, columns ? k : n, Values::kWild, 2);
            Matrix<float> c(m, n);
            Matrix<float> expected(m, n);
            GemmProblem problem{.a = {a.view()},
                                .b = {b.view(), side, mx},
                                .c = expected.view()};
            GemmScalar(problem);
            PackedOperand packed;
            packed.Pack(problem.b);
            problem.b = {};
            problem.c = c.view();
            problem.packed_b = &packed;

            EXPECT_EQ(packed.quantization(), mx);
            EXPECT_TRUE(EqualsScalar(problem)) << m << "x" << n << "x" << k;
            EXPECT_TRUE(SameResults(c.view(), expected.view()))
                << m << "x" << n << "x" << k;
          }
        }
      }
    }
  }
}

TEST_P(GemmBatchOn, FewerColumnsUseTheFirstRowsOfAPackedSide) {
  const Matrix<float> a = Filled(20, 40, Values::kFp32, 1);
  const Matrix<float> b = Filled(100, 40, Values::kFp32, 2);
  PackedOperand packed;
  packed.Pack({b.view()});
  for (const size_t columns : {1, 31, 64, 77, 100}) {
    Matrix<float> c(20, columns);
    Matrix<float> expected(20, columns);
    GemmScalar({.a = {a.view()},
                .b = {b.view().Rows(0, columns)},
                .c = expected.view()});

    Gemm({.a = {a.view()}, .c = c.view(), .packed_b = &packed});

    EXPECT_TRUE(SameResults(c.view(), expected.view())) << columns;
  }
}

TEST_P(GemmBatchOn, AnAddendIsAddedToTheRoundedSum) {
  const std::vector<size_t> segments = {20, 40, 50};
  for (const size_t n : {16, 32, 45}) {
    for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
      for (const bool cut : {false, true}) {
        const Matrix<float> a = Filled(30, 50, Values::kFp32, 1);
        const Matrix<float> b = Filled(n, 50, Values::kFp32, 2);
        const Matrix<float> addend = Filled(30, n, Values::kBf16, 3);
        Matrix<float> sum(30, n);
        Matrix<float> c(30, n);
        GemmProblem problem{.a = {a.view()},
                            .b = {b.view()},
                            .c = sum.view(),
                            .rounding = rounding};
        if (cut) problem.segment_ends = segments;
        Gemm(problem);
        for (size_t i = 0; i < sum.size(); ++i) {
          const float value = addend.data()[i] + sum.data()[i];
          sum.data()[i] =
              rounding == Rounding::kBf16 ? formats::RoundToBf16(value) : value;
        }

        problem.c = c.view();
        problem.addend = addend.view();
        EXPECT_TRUE(EqualsScalar(problem)) << n;
        EXPECT_TRUE(SameResults(c.view(), sum.view())) << n;

        c.CopyFrom(addend);
        problem.addend = c.view();
        Gemm(problem);
        EXPECT_TRUE(SameResults(c.view(), sum.view())) << n << ", in place";
      }
    }
  }
}

TEST_P(GemmBatchOn, LongSegmentsAreSummedInBlocksOfStepsWithTheSameBits) {
  // Blocks of steps end between the leaves of the tree, at counts of leaves
  // with one and with several open nodes.
  const size_t depth = 7'000;
  std::vector<size_t> uneven = {1'500, 1'500, 1'501, 1'900};
  while (uneven.back() < depth) {
    uneven.push_back(std::min(uneven.back() + 211, depth));
  }
  std::vector<size_t> even;
  for (size_t end = 250; end <= depth; end += 250) even.push_back(end);
  for (const std::vector<size_t>& ends : {uneven, even}) {
    for (const size_t n : {9, 45}) {
      for (const formats::Quantization* mx :
           {static_cast<const formats::Quantization*>(nullptr), &E4m3()}) {
        const Matrix<float> a = Filled(depth, 33, Values::kFp32, 1);
        const Matrix<float> b = Filled(depth, n, Values::kFp32, 2);
        Matrix<float> c(33, n);
        EXPECT_TRUE(EqualsScalar({.a = {a.view(), Contraction::kRows, mx},
                                  .b = {b.view(), Contraction::kRows, mx},
                                  .c = c.view(),
                                  .rounding = Rounding::kBf16,
                                  .segment_ends = ends}))
            << ends.size() << " segments, " << n << " columns";
      }
    }
  }
}

TEST_P(GemmBatchOn, ProductsOfOneOperandMayHaveOtherSegments) {
  const std::vector<size_t> two = {40, 100};
  const std::vector<size_t> three = {7, 64, 100};
  const Matrix<float> shared = Filled(100, 30, Values::kFp32, 1);
  const Matrix<float> other = Filled(100, 20, Values::kFp32, 2);
  const Operand x = {shared.view(), Contraction::kRows, &E4m3()};
  const Operand y = {other.view(), Contraction::kRows, &E4m3()};
  for (const bool shared_left : {true, false}) {
    const Operand& a = shared_left ? x : y;
    const Operand& b = shared_left ? y : x;
    std::vector<Matrix<float>> results;
    std::vector<GemmProblem> problems;
    results.reserve(2);
    for (const std::vector<size_t>& ends : {std::cref(two), std::cref(three)}) {
      const auto c = results.emplace_back(a.extent(), b.extent()).view();
      problems.push_back({.a = a, .b = b, .c = c, .segment_ends = ends});
    }
    Executor executor(1);

    GemmBatch(problems, executor);

    for (GemmProblem problem : problems) {
      Matrix<float> expected(a.extent(), b.extent());
      const MatrixView<float> c = problem.c;
      problem.c = expected.view();
      GemmScalar(problem);
      EXPECT_TRUE(SameResults(c, expected.view()));
    }
  }
}

TEST_P(GemmBatchOn, ProductsOfOneMatrixMayDifferInFormatAndContraction) {
  const Matrix<float> x = Filled(60, 60, Values::kFp32, 1);
  const Matrix<float> y = Filled(60, 60, Values::kFp32, 2);
  const formats::Quantization e5m2{&formats::FormatByName("e5m2")};
  Matrix<float> results[6];
  std::vector<GemmProblem> problems;
  for (size_t i = 0; i < 6; ++i) {
    results[i].Resize(60, 60);
    problems.push_back(
        {.a = {x.view()}, .b = {y.view()}, .c = results[i].view()});
  }
  problems[1].a.quantization = &E4m3();
  problems[2].b.quantization = &e5m2;
  problems[3].a.quantization = problems[3].b.quantization = &e5m2;
  problems[4].a.contraction = Contraction::kRows;
  problems[5].b.contraction = Contraction::kRows;
  Executor executor(1);

  GemmBatch(problems, executor);

  for (size_t i = 0; i < 6; ++i) {
    Matrix<float> expected(60, 60);
    problems[i].c = expected.view();
    GemmScalar(problems[i]);
    EXPECT_TRUE(SameResults(results[i].view(), expected.view())) << i;
  }
}

TEST_P(GemmBatchOn, RowsThatFallIntoOneCacheSetGiveTheSameBits) {
  // Strides of 4 KB: the left side is packed though it is not quantised.
  const Matrix<float> wide = Filled(40, 1024, Values::kFp32, 1);
  const Matrix<float> right = Filled(50, 40, Values::kFp32, 2);
  Matrix<float> c(30, 50);
  EXPECT_TRUE(EqualsScalar({.a = {wide.view().Rows(0, 30).Cols(3, 40)},
                            .b = {right.view()},
                            .c = c.view()}));
  EXPECT_TRUE(EqualsScalar({.a = {wide.view().Cols(5, 30), Contraction::kRows},
                            .b = {right.view()},
                            .c = c.view()}));
}

TEST(GemmErrors, NameAPackedSideThatDoesNotFit) {
  const Matrix<float> a(3, 8);
  const Matrix<float> b(5, 8);
  Matrix<float> c(3, 6);
  PackedOperand packed;
  packed.Pack({b.view()});
  const GemmProblem wide{.a = {a.view()}, .c = c.view(), .packed_b = &packed};
  EXPECT_THROW(Gemm(wide), Error);

  const std::vector<size_t> segments = {4, 8};
  GemmProblem cut = wide;
  cut.c = c.view().Cols(0, 5);
  EXPECT_NO_THROW(Gemm(cut));
  cut.segment_ends = segments;
  EXPECT_THROW(Gemm(cut), Error);
}

TEST(GemmErrors, NameAnAddendOfAnotherShape) {
  const Matrix<float> a(3, 8);
  const Matrix<float> b(5, 8);
  const Matrix<float> addend(3, 4);
  Matrix<float> c(3, 5);
  EXPECT_THROW(Gemm({.a = {a.view()},
                     .b = {b.view()},
                     .c = c.view(),
                     .addend = addend.view()}),
               Error);
}

/// Experts with very uneven numbers of rows, as a feed-forward uses them: two
/// products read the same x, two weight gradients the same x and segments.
class Experts {
 public:
  Experts(std::vector<size_t> counts, const formats::Quantization* mx)
      : counts_(std::move(counts)), mx_(mx) {
    for (const size_t count : counts_) rows_ += count;
    x_ = Filled(rows_, kIn, Values::kFp32, 1);
    dy_[0] = Filled(rows_, kOut, Values::kFp32, 2);
    dy_[1] = Filled(rows_, kOut, Values::kFp32, 3);
    for (size_t i = 0; i < 2; ++i) {
      weights_[i] = Filled(counts_.size() * kOut, kIn, Values::kFp32, 4 + i);
      y_[i].Resize(rows_, kOut);
      dweights_[i].Resize(counts_.size() * kOut, kIn);
    }
  }

  std::vector<GemmProblem> Problems() {
    std::vector<GemmProblem> problems;
    for (size_t i = 0; i < 2; ++i) {
      size_t begin = 0;
      for (size_t e = 0; e < counts_.size(); ++e) {
        const size_t n = counts_[e];
        problems.push_back(
            {.a = {x_.view().Rows(begin, n), Contraction::kColumns, mx_},
             .b = {weights_[i].view().Rows(e * kOut, kOut),
                   Contraction::kColumns, mx_},
             .c = y_[i].view().Rows(begin, n)});
        problems.push_back(
            {.a = {dy_[i].view().Rows(begin, n), Contraction::kRows, mx_},
             .b = {x_.view().Rows(begin, n), Contraction::kRows, mx_},
             .c = dweights_[i].view().Rows(e * kOut, kOut)});
        begin += n;
      }
    }
    return problems;
  }

  void Clear() {
    for (Matrix<float>* m : {&y_[0], &y_[1], &dweights_[0], &dweights_[1]}) {
      std::fill_n(m->data(), m->size(), std::nanf(""));
    }
  }

 private:
  static constexpr size_t kIn = 72;
  static constexpr size_t kOut = 40;
  std::vector<size_t> counts_;
  const formats::Quantization* mx_;
  size_t rows_ = 0;
  Matrix<float> x_, dy_[2], weights_[2], y_[2], dweights_[2];
};

TEST_P(GemmBatchOn, SharedOperandsAndTeamsDoNotShowInTheBits) {
  for (const formats::Quantization* mx :
       {static_cast<const formats::Quantization*>(nullptr), &E4m3()}) {
    Experts experts({33, 0, 1, 500, 7, 128}, mx);
    const std::vector<GemmProblem> problems = experts.Problems();
    std::vector<Matrix<float>> expected;
    for (const GemmProblem& problem : problems) {
      GemmProblem definition = problem;
      definition.c =
          expected.emplace_back(problem.c.rows(), problem.c.cols()).view();
      GemmScalar(definition);
    }
    for (const int threads : {1, 2, 3, 7}) {
      experts.Clear();
      Executor executor(threads);
      GemmBatch(problems, executor);
      for (size_t i = 0; i < problems.size(); ++i) {
        EXPECT_TRUE(SameResults(problems[i].c, expected[i].view()))
            << "problem " << i << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace isoloss::kernels::gemm_batch_test
