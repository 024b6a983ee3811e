// Sums, RMSNorm, RoPE and element-wise operations: by hand on small inputs, and
// against the formulas in double.
#include "isoloss/kernels/rowwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "rowwise_cases.h"

namespace isoloss::kernels::rowwise_test {
namespace {

using testing::Each;
using testing::ElementsAre;

class RowwiseTest : public ScalarTest {};

TEST_F(RowwiseTest, DotAddsSixteenLanesPairwise) {
  // 2^24 + 1 is lost to rounding (tie to even), 2^24 + 2 is not.
  const auto sum = [](size_t second, size_t third) {
    std::vector<float> a(64, 0.0f);
    a[0] = 0x1p24f;
    a[second] = 1;
    a[third] = 1;
    const std::vector<float> ones(64, 1.0f);
    return RowDot(a, ones);
  };

  EXPECT_EQ(sum(16, 32), 0x1p24f);     // both in lane 0
  EXPECT_EQ(sum(1, 17), 0x1p24f + 2);  // both in lane 1
  EXPECT_EQ(sum(1, 9), 0x1p24f + 2);   // 8 apart meet first
  EXPECT_EQ(sum(8, 4), 0x1p24f);       // each meets lane 0 alone
  EXPECT_EQ(sum(4, 12), 0x1p24f + 2);
  EXPECT_EQ(sum(1, 3), 0x1p24f + 2);  // lanes 1 and 3 meet before lane 0
  EXPECT_EQ(sum(1, 2), 0x1p24f);
}

TEST_F(RowwiseTest, SumOfSquaresAddsLeavesPairwise) {
  // In double, 2^54 + 2 is lost to rounding (tie to even), 2^54 + 4 is not.
  const auto sum = [&](size_t second, size_t third) {
    std::vector<float> values(4 * kSquaresLeaf, 0.0f);
    values[0] = 0x1p27f;
    for (const size_t leaf : {second, third}) {
      values[leaf * kSquaresLeaf] = 1;
      values[leaf * kSquaresLeaf + 1] = 1;
    }
    return SumOfSquares(values, executor_);
  };

  EXPECT_EQ(sum(1, 2), 0x1p54);
  EXPECT_EQ(sum(2, 3), 0x1p54 + 4);
  EXPECT_EQ(SumOfSquares(std::vector<float>{3, 4}, executor_), 25);
  EXPECT_EQ(SumOfSquares(std::vector<float>(5000, 1.0f), executor_), 5000);
  EXPECT_EQ(SumOfSquares({}, executor_), 0);
}

TEST_F(RowwiseTest, RmsNormScalesToUnitMeanSquare) {
  std::vector<float> x = {4, 0, 0, 0, 2, -2, 2, 2};
  const std::vector<float> weight = {1, 2, 3, 4};
  std::vector<float> y(8);
  std::vector<float> rstd(2);

  RmsNormForward(Rows(x, 2), weight, 0, Rounding::kFp32, Rows(y, 2), rstd,
                 executor_);

  EXPECT_THAT(y, ElementsAre(2, 0, 0, 0, 1, -2, 3, 4));
  EXPECT_THAT(rstd, ElementsAre(0.5f, 0.5f));
}

TEST_F(RowwiseTest, RmsNormMatchesTheFormula) {
  constexpr size_t kCols = 100;
  constexpr double kEps = 1e-5;
  // r: 7 FMAs per lane, 4 levels, /D, +eps halved by the root; root, 1/x: 8.5
  // u. Two products more: 10.5 u.
  constexpr double kBound = 10.5 * kU;
  std::vector<float> x = Uniform(3 * kCols, 0);
  const std::vector<float> weight = Uniform(kCols, 1);
  std::vector<float> y(x.size());
  std::vector<float> rounded(x.size());
  std::vector<float> rstd(3);

  RmsNormForward(Rows(x, 3), weight, static_cast<float>(kEps), Rounding::kBf16,
                 Rows(rounded, 3), rstd, executor_);
  RmsNormForward(Rows(x, 3), weight, static_cast<float>(kEps), Rounding::kFp32,
                 Rows(y, 3), rstd, executor_);

  for (size_t t = 0; t < 3; ++t) {
    double squares = 0;
    for (size_t i = 0; i < kCols; ++i) {
      squares += std::pow(x[t * kCols + i], 2);
    }
    const double r = 1 / std::sqrt(squares / kCols + kEps);
    EXPECT_NEAR(rstd[t], r, r * kBound);
    for (size_t i = 0; i < kCols; ++i) {
      const size_t at = t * kCols + i;
      const double exact = double{x[at]} * r * double{weight[i]};
      EXPECT_NEAR(y[at], exact, std::fabs(exact) * kBound);
      EXPECT_EQ(rounded[at], formats::RoundToBf16(y[at]));
    }
  }
}

TEST_F(RowwiseTest, RmsNormBackwardByHand) {
  std::vector<float> x = {2, 2};
  std::vector<float> dy = {1, 0};
  std::vector<float> dx(2);
  std::vector<float> dweight(2);

  const std::vector<float> weight = {1, 1};
  const std::vector<float> rstd = {0.5f};
  RmsNormGradient gradient = {Rows(x, 1),      weight, rstd,        Rows(dy, 1),
                              Rounding::kFp32, false,  Rows(dx, 1), dweight};

  RmsNormBackward(gradient, executor_);
  EXPECT_THAT(dx, ElementsAre(0.25f, -0.25f));
  EXPECT_THAT(dweight, ElementsAre(1, 0));

  gradient.add = true;
  RmsNormBackward(gradient, executor_);
  EXPECT_THAT(dx, ElementsAre(0.5f, -0.5f));
  EXPECT_THAT(dweight, ElementsAre(1, 0));
}

TEST_F(RowwiseTest, RmsNormBackwardIsTheDerivative) {
  // L = sum_i g_i y_i(x, w) of one row; |x|, |w|, |g| <= 1, r < 2.5. The third
  // derivative is below r^3: h^2 r^3 / 6 < 3e-8. In FP32 the dot has 3 + 4
  // roundings, c five more, the rest 4; all terms are below r^2 = 6.
  constexpr size_t kCols = 40;
  constexpr double kEps = 1e-5;
  constexpr double kStep = 1e-4;
  constexpr double kBound = 16 * kU * 6 + 3e-8;
  std::vector<float> x = Uniform(kCols, 9);
  std::vector<float> weight = Uniform(kCols, 10);
  std::vector<float> dy = Uniform(kCols, 11);
  std::vector<float> y(kCols);
  std::vector<float> rstd(1);
  std::vector<float> dx(kCols);
  std::vector<float> dweight(kCols);
  const auto value = [&](size_t moved, double by) {
    double squares = 0;
    double weighted = 0;
    for (size_t i = 0; i < kCols; ++i) {
      const double x_i = double{x[i]} + (i == moved ? by : 0.0);
      squares += x_i * x_i;
      weighted += double{dy[i]} * double{weight[i]} * x_i;
    }
    return weighted / std::sqrt(squares / kCols + kEps);
  };

  RmsNormForward(Rows(x, 1), weight, static_cast<float>(kEps), Rounding::kFp32,
                 Rows(y, 1), rstd, executor_);
  RmsNormBackward({Rows(x, 1), weight, rstd, Rows(dy, 1), Rounding::kFp32,
                   /*add=*/false, Rows(dx, 1), dweight},
                  executor_);

  ASSERT_LT(rstd[0], 2.5f);
  for (size_t i = 0; i < kCols; ++i) {
    const double slope = (value(i, kStep) - value(i, -kStep)) / (2 * kStep);
    EXPECT_NEAR(dx[i], slope, kBound) << i;
    // y is linear in w.
    EXPECT_NEAR(double{dweight[i]} * double{weight[i]},
                double{dy[i]} * double{y[i]}, 6 * kU * 2.5);
  }
}

TEST_F(RowwiseTest, RmsNormBackwardAddsLeavesOfTokensPairwise) {
  // Four leaves that contribute 2^24, 0, 1, 1: the ones meet first.
  std::vector<float> x(4 * kTokenLeaf, 0.0f);
  x[0] = 0x1p24f;
  x[2 * kTokenLeaf] = 1;
  x[3 * kTokenLeaf + 5] = 1;
  std::vector<float> dy(x.size(), 1.0f);
  const std::vector<float> rstd(x.size(), 1.0f);
  std::vector<float> dx(x.size());
  std::vector<float> dweight(1);

  RmsNormBackward(
      {Rows(x, x.size()), std::vector<float>{1}, rstd, Rows(dy, x.size()),
       Rounding::kFp32, /*add=*/false, Rows(dx, x.size()), dweight},
      executor_);

  EXPECT_EQ(dweight[0], 0x1p24f + 2);
}

TEST_F(RowwiseTest, RmsNormBackwardOfNoTokenIsZero) {
  std::vector<float> dweight = {7, 7};

  RmsNormBackward({{nullptr, 0, 2},
                   std::vector<float>{1, 1},
                   {},
                   {nullptr, 0, 2},
                   Rounding::kFp32,
                   /*add=*/false,
                   {nullptr, 0, 2},
                   dweight},
                  executor_);

  EXPECT_THAT(dweight, Each(0.0f));
}

TEST_F(RowwiseTest, RopeTurnsAdjacentPairsAtAnOffset) {
  // One head of 5 columns; the pair sits in columns 2 and 3; a quarter turn.
  std::vector<float> x = {9, 9, 1, 2, 9, 9, 9, 1, 2, 9};
  std::vector<float> cos = {1, 0};
  std::vector<float> sin = {0, 1};
  const std::vector<int32_t> positions = {1, 0};

  const HeadColumns<float> heads = {Rows(x, 2), 1, 5, 2, 2};
  RopeAngles angles = {positions, Rows(cos, 2), Rows(sin, 2), false};

  ApplyRope(heads, angles, Rounding::kFp32, executor_);
  EXPECT_THAT(x, ElementsAre(9, 9, -2, 1, 9, 9, 9, 1, 2, 9));

  angles.inverse = true;
  ApplyRope(heads, angles, Rounding::kFp32, executor_);
  EXPECT_THAT(x, ElementsAre(9, 9, 1, 2, 9, 9, 9, 1, 2, 9));
}

TEST_F(RowwiseTest, HeadsAreCopiedAndAddedInAscendingOrder) {
  // Two heads of 3 columns; 1 and 2 of each are theirs.
  std::vector<float> x = {0, 0x1p24f, 1, 0, 2, 3};
  std::vector<float> y(6);
  std::vector<float> sum(2);
  const HeadColumns<const float> from = {Rows(x, 1), 2, 3, 1, 2};

  CopyHeads(from, {Rows(y, 1), 2, 3, 0, 2}, executor_);
  SumHeads(from, Rounding::kFp32, Rows(sum, 1), executor_);

  EXPECT_THAT(y, ElementsAre(0x1p24f, 1, 0, 2, 3, 0));
  EXPECT_THAT(sum, ElementsAre(0x1p24f + 2, 4));

  CopyHeads({Rows(x, 1), 2, 0, 4, 2}, {Rows(y, 1), 2, 3, 0, 2}, executor_);
  EXPECT_THAT(y, ElementsAre(2, 3, 0, 2, 3, 0));
}

TEST_F(RowwiseTest, FiniteAmaxLooksAtRoundedValues) {
  // The largest float rounds to infinity in BF16.
  const float largest = std::numeric_limits<float>::max();
  std::vector<float> x = {1, -3, kNan, largest, -kInf, 257};

  const std::vector<size_t> begins = {0, 2, 2, 3, 6};  // of groups of rows
  std::vector<float> amaxes(4);

  FiniteAmaxes(Rows(x, 6), begins, Rounding::kFp32, amaxes, executor_);
  EXPECT_THAT(amaxes, ElementsAre(3, 0, 0, largest));
  FiniteAmaxes(Rows(x, 6), begins, Rounding::kBf16, amaxes, executor_);
  EXPECT_THAT(amaxes, ElementsAre(3, 0, 0, 256));
}

TEST_F(RowwiseTest, AddAndCastRoundOnce) {
  std::vector<float> x = {1, 256, -0.0f};
  std::vector<float> y = {0x1p-8f, 1, -0.0f};
  std::vector<float> sum(3);
  std::vector<float> cast(3);

  Add(Rows(x, 1), Rows(y, 1), Rounding::kBf16, Rows(sum, 1), executor_);
  Cast(Rows(y, 1), Rounding::kFp32, Rows(cast, 1), executor_);

  EXPECT_THAT(sum, ElementsAre(1, 256, 0));  // both ties go to even
  EXPECT_TRUE(std::signbit(sum[2]));
  EXPECT_EQ(cast, y);
}

TEST_F(RowwiseTest, GatherCombineAddsSlotsInOrderThenTheAddend) {
  std::vector<float> rows = {0x1p24f, 1, 1, 10};
  std::vector<int32_t> index = {0, 1, 1, 0};
  std::vector<float> weights = {1, 1, 3, 0};
  std::vector<float> addend = {1, 5, 0, 0};
  std::vector<float> out(4);

  GatherCombine(Rows(rows, 2), Rows(index, 2), Rows(weights, 2),
                Rows(addend, 2), Rounding::kFp32, Rows(out, 2), executor_);
  // Column 0 of token 0: 2^24 + 1 + 1 in this order stays 2^24.
  EXPECT_THAT(out, ElementsAre(0x1p24f, 16, 3, 30));

  GatherCombine(Rows(rows, 2), Rows(index, 2), {}, {}, Rounding::kFp32,
                Rows(out, 2), executor_);
  EXPECT_THAT(out, ElementsAre(0x1p24f, 11, 0x1p24f, 11));

  index[3] = 2;
  EXPECT_THROW(GatherCombine(Rows(rows, 2), Rows(index, 2), {}, {},
                             Rounding::kFp32, Rows(out, 2), executor_),
               Error);
}

TEST_F(RowwiseTest, AdamWByHand) {
  std::vector<float> p = {1, 1};
  std::vector<float> m = {4, 0};
  std::vector<float> v = {0, 0};
  const std::vector<float> g = {4, 0};
  const AdamWScalars scalars = {.decay = 0.5f,
                                .beta1 = 0.5f,
                                .one_minus_beta1 = 0.5f,
                                .beta2 = 0.75f,
                                .one_minus_beta2 = 0.25f,
                                .step_size = 0.125f,
                                .bias2_sqrt = 0.5f,
                                .eps = 1,
                                .grad_scale = 0.5f};

  AdamWUpdate(p, m, v, g, scalars, executor_);

  // g' = 2: m = 2 + 1, v = 0.25 * 4 = 1; p = 0.5 - 0.125 * 3 / (1/0.5 + 1).
  EXPECT_THAT(m, ElementsAre(3, 0));
  EXPECT_THAT(v, ElementsAre(1, 0));
  EXPECT_THAT(p, ElementsAre(0.375f, 0.5f));
}

TEST_F(RowwiseTest, ArraysThatDoNotFitAreShapeErrors) {
  std::vector<float> x(6);
  std::vector<float> y(4);

  EXPECT_THROW(
      Add(Rows(x, 2), Rows(y, 2), Rounding::kFp32, Rows(x, 2), executor_),
      Error);
  EXPECT_THROW(RowDot(x, y), Error);
  EXPECT_THROW(ElementSigmoid(Rows(x, 2), Rows(x, 3), executor_), Error);
  const std::vector<int32_t> beyond = {2};
  const std::vector<int32_t> within = {1};
  const MatrixView<const float> table = Rows(y, 2);
  const HeadColumns<float> heads = {Rows(x, 1), 1, 6, 0, 4};
  const HeadColumns<float> too_wide = {Rows(x, 1), 2, 4, 0, 4};
  EXPECT_THROW(ApplyRope(heads, {beyond, table, table, false}, Rounding::kFp32,
                         executor_),
               Error);
  EXPECT_THROW(ApplyRope(too_wide, {within, table, table, false},
                         Rounding::kFp32, executor_),
               Error);
  EXPECT_THROW(SumHeads(HeadColumns<const float>{Rows(x, 1), 2, 4, 0, 4},
                        Rounding::kFp32, Rows(y, 1), executor_),
               Error);
}

}  // namespace
}  // namespace isoloss::kernels::rowwise_test
