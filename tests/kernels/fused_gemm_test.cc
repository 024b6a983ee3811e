// Sums of tensor cores on every target: bits of the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/prepare.h"

namespace isoloss::kernels::fused_gemm_test {
namespace {

class FusedGemmOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, FusedGemmOn,
                         testing::ValuesIn(SupportedTargets()), TargetTestName);

/// Exponents of a factor are drawn from [from, to].
struct Factors {
  const char* name;
  int from;
  int to;
  float zeros = 0.0f;    ///< share of elements
  bool largest = false;  ///< all significands are the largest of BF16
};

/// Vectors compute sums with exponents from F - 125, which is -112 to -100, to
/// 126: some kinds lie across these bounds.
constexpr Factors kFactors[] = {
    {"equal", 0, 0},
    {"largest", 3, 3, 0.0f, true},
    {"close", -3, 0},
    {"wide", -30, 30},
    {"low", -58, -47},
    {"products below FP32", -80, -60},
    {"subnormals", -140, -125},
    {"high", 54, 62},
    {"products beyond FP32", 62, 66},
    {"all", -140, 127},
    {"mostly zeros", -10, 10, 0.9f},
    {"low and zeros", -70, -45, 0.7f},
    {"only zeros", 0, 0, 1.0f},
};

/// Every eighth row from the third on is zero.
Matrix<float> Draw(const Factors& factors, size_t rows, size_t cols,
                   uint64_t stream) {
  const CounterRng rng(47, stream);
  Matrix<float> result(rows, cols);
  for (size_t i = 0; i < result.size(); ++i) {
    const uint64_t bits = rng.Bits(2 * i);
    const bool zero =
        rng.Uniform(2 * i + 1) < static_cast<double>(factors.zeros);
    const auto binades = static_cast<uint64_t>(factors.to - factors.from + 1);
    const int exponent = factors.from + static_cast<int>((bits >> 8) % binades);
    const uint64_t fraction = factors.largest ? 127 : bits % 128;
    const float magnitude =
        std::ldexp(1.0f + static_cast<float>(fraction) / 128.0f, exponent);
    const bool negative = !factors.largest && (bits >> 40) % 2 != 0;
    result.data()[i] = zero || i / cols % 8 == 2 ? 0.0f
                       : negative                ? -magnitude
                                                 : magnitude;
  }
  return result;
}

/// Those that take factors of any kind; FP4's align groups by scales alone.
std::vector<const Accumulator*> Accumulators() {
  std::vector<const Accumulator*> result;
  for (const Accumulator* of : AllAccumulators()) {
    if (of->exponents != FactorExponents::kOfScales) result.push_back(of);
  }
  return result;
}

struct Shape {
  size_t m, n, k;
};

TEST_P(FusedGemmOn, HasTheBitsOfTheDefinition) {
  for (const Accumulator* accumulator : Accumulators()) {
    SCOPED_TRACE(accumulator->name);
    for (const Factors& factors : kFactors) {
      SCOPED_TRACE(factors.name);
      for (const Shape& shape :
           {Shape{5, 35, 16}, {1, 1, 1}, {3, 70, 77}, {9, 16, 300}}) {
        const Matrix<float> a = Draw(factors, shape.m, shape.k, 1);
        const Matrix<float> b = Draw(factors, shape.n, shape.k, 2);
        Matrix<float> c(shape.m, shape.n);
        for (const size_t interval : {0, 40}) {
          EXPECT_TRUE(EqualsScalar({.a = {a.view()},
                                    .b = {b.view()},
                                    .c = c.view(),
                                    .accumulation = {accumulator, interval}}))
              << shape.m << "x" << shape.n << "x" << shape.k;
        }
      }
    }
  }
}

constexpr const char* kOfCodes[] = {"e4m3.rceil",
                                    "e5m2.floor",
                                    "e2m1.even",
                                    "e4m3.te.fp32.0x0",
                                    "e4m3.te.pow2.16x16",
                                    "e4m3.te.fp32.1x0.hadamard16",
                                    "e4m3.rceil.stochastic16"};

TEST_P(FusedGemmOn, AlignsCodesByTheirOwnExponents) {
  for (const char* name : kOfCodes) {
    SCOPED_TRACE(name);
    const formats::Quantization of = formats::QuantizationByName(name);
    for (const Factors& factors : kFactors) {
      SCOPED_TRACE(factors.name);
      const Matrix<float> a = Draw(factors, 9, 77, 1);
      const Matrix<float> b = Draw(factors, 35, 77, 2);
      Matrix<float> c(9, 35);
      for (const char* accumulator : {"hopper_f13", "blackwell_f25"}) {
        EXPECT_TRUE(
            EqualsScalar({.a = {a.view(), Contraction::kColumns, &of},
                          .b = {b.view(), Contraction::kColumns, &of},
                          .c = c.view(),
                          .accumulation = {&AccumulatorByName(accumulator)}}))
            << accumulator;
      }
    }
  }
}

TEST_P(FusedGemmOn, ExponentsOfCodesAreThoseOfTheDefinition) {
  const size_t depth = 77;
  for (const char* name : kOfCodes) {
    SCOPED_TRACE(name);
    const formats::Quantization of = formats::QuantizationByName(name);
    const Pieces pieces = PiecesOf(&of, &of, {}, {&depth, 1});
    for (const Factors& factors : kFactors) {
      SCOPED_TRACE(factors.name);
      const Matrix<float> values = Draw(factors, 40, depth, 1);
      const Operand operand{values.view(), Contraction::kColumns, &of};
      PreparedOperand actual;
      Prepare(operand, pieces, FactorExponents::kOfCodes, actual);
      PreparedOperand expected;
      PrepareScalar(operand, pieces, FactorExponents::kOfCodes, expected);

      EXPECT_TRUE(SameResults(actual.values.view(), expected.values.view()));
      for (size_t i = 0; i < actual.exponents.size(); ++i) {
        // Of a NaN no exponent is read.
        if (std::isnan(expected.values.data()[i])) continue;
        ASSERT_EQ(actual.exponents.data()[i], expected.exponents.data()[i])
            << expected.values.data()[i];
      }
    }
  }
}

TEST_P(FusedGemmOn, TakesAnyBits) {
  for (const Accumulator* accumulator : Accumulators()) {
    SCOPED_TRACE(accumulator->name);
    for (const Values kind : {Values::kFp32, Values::kWild}) {
      Matrix<float> a = Filled(20, 150, kind, 1);
      std::fill_n(a.Row(4), a.cols(), 0.0f);
      const Matrix<float> b = Filled(40, 150, kind, 2);
      Matrix<float> c(20, 40);

      EXPECT_TRUE(EqualsScalar({.a = {a.view()},
                                .b = {b.view()},
                                .c = c.view(),
                                .accumulation = {accumulator}}));
    }
  }
}

/// Returns row 0 of a product in which one factor of each side is replaced.
std::vector<float> WithFactors(const Accumulator& accumulator, float of_a,
                               float of_b) {
  const Factors ones{"ones", 0, 0};
  Matrix<float> a = Draw(ones, 1, 64, 1);
  Matrix<float> b = Draw(ones, 40, 64, 2);
  a(0, 10) = of_a;
  b(5, 10) = of_b;
  Matrix<float> c(1, 40);
  const GemmProblem problem{.a = {a.view()},
                            .b = {b.view()},
                            .c = c.view(),
                            .accumulation = {&accumulator}};
  EXPECT_TRUE(EqualsScalar(problem)) << of_a << " " << of_b;
  return {c.Row(0), c.Row(0) + 40};
}

TEST_P(FusedGemmOn, InfinitiesAndNaNsReachTheSumsThatReadThem) {
  const float infinity = INFINITY;
  for (const Accumulator* accumulator : Accumulators()) {
    SCOPED_TRACE(accumulator->name);
    const std::vector<float> of_b = WithFactors(*accumulator, 1, -infinity);
    EXPECT_EQ(of_b[5], -infinity);
    EXPECT_TRUE(std::isfinite(of_b[4]));
    EXPECT_TRUE(std::isfinite(of_b[6]));
    EXPECT_TRUE(std::isnan(WithFactors(*accumulator, 0, infinity)[5]));
    EXPECT_TRUE(std::isnan(WithFactors(*accumulator, 1, NAN)[5]));
    EXPECT_TRUE(std::isinf(WithFactors(*accumulator, infinity, 1)[7]));
    EXPECT_TRUE(std::isinf(WithFactors(*accumulator, 0x1p127f, 0x1p127f)[5]));
  }
}

TEST_P(FusedGemmOn, ProductsThatShareASideGetTheirOwnSums) {
  const Factors wide{"wide", -30, 30};
  const Matrix<float> a = Draw(wide, 70, 96, 1);
  const Matrix<float> b = Draw(wide, 40, 96, 2);
  std::vector<const Accumulator*> accumulators = {nullptr};
  for (const Accumulator* of : Accumulators()) accumulators.push_back(of);
  std::vector<GemmProblem> batch;
  std::vector<Matrix<float>> results(2 * accumulators.size());
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].Resize(70, 40);
    batch.push_back({.a = {a.view()},
                     .b = {b.view()},
                     .c = results[i].view(),
                     .accumulation = {accumulators[i / 2], 32}});
  }
  for (const int threads : {1, 3}) {
    Executor executor(threads);

    GemmBatch(batch, executor);

    Matrix<float> expected(70, 40);
    for (GemmProblem problem : batch) {
      const MatrixView<float> actual = problem.c;
      problem.c = expected.view();
      GemmScalar(problem);
      EXPECT_TRUE(SameResults(actual, expected.view()));
    }
  }
}

}  // namespace
}  // namespace isoloss::kernels::fused_gemm_test
