// Softmax, SwiGLU and cross-entropy: by hand on small inputs, and against the
// formulas and their central differences in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/rowwise.h"
#include "rowwise_cases.h"
#include "support/one_block_wave.h"

namespace isoloss::kernels::rowwise_activation_test {
namespace {

using test_support::OneBlockWave;
using testing::ElementsAre;

class SoftmaxTest : public ScalarTest {};
class SwigluTest : public ScalarTest {};
class CrossEntropyTest : public ScalarTest {};

TEST_F(SoftmaxTest, CausalSoftmaxSharesOutAllowedEntries) {
  std::vector<float> scores(12, 3.0f);

  CausalSoftmaxForward(OneBlockWave(3, 4).wave(), scores, 0.5f, executor_);

  EXPECT_THAT(scores, ElementsAre(0.5f, 0.5f, 0, 0,                 //
                                  1.0f / 3, 1.0f / 3, 1.0f / 3, 0,  //
                                  0.25f, 0.25f, 0.25f, 0.25f));
}

TEST_F(SoftmaxTest, SoftmaxMatchesTheFormula) {
  // x - max and its product are off by 2 u of an argument <= 20: 40 u; Exp by
  // 2 u; so is their sum, of 7 + 4 roundings more; 1/S and the product: 2 u.
  constexpr double kBound = (2 * (40 + 2) + 11 + 2) * kU;
  std::vector<float> x = Uniform(100, 2, 10);
  std::vector<float> p(100);

  RowSoftmax(Rows(x, 1), Rows(p, 1), executor_);

  double sum = 0;
  for (const float v : x) sum += std::exp(double{v});
  for (size_t i = 0; i < 100; ++i) {
    const double exact = std::exp(double{x[i]}) / sum;
    EXPECT_NEAR(p[i], exact, exact * kBound);
  }
}

TEST_F(SoftmaxTest, SoftmaxTreatsNonFiniteEntriesAsStated) {
  std::vector<float> x = {0, -kInf, 0, kNan, 0, kInf, -kInf, -kInf};
  std::vector<float> p(8);

  RowSoftmax(Rows(x, 4), Rows(p, 4), executor_);

  EXPECT_EQ(p[0], 1.0f);
  EXPECT_EQ(p[1], 0.0f);
  for (size_t i = 2; i < 8; ++i) EXPECT_TRUE(std::isnan(p[i])) << i;
}

TEST_F(SoftmaxTest, CausalSoftmaxBackwardIsTheDerivative) {
  // L = sum_j g_j p_j(x). Central differences with step h are off by about h^2
  // times the third derivative (<= scale^3 |g|) / 6: 2e-9; the FP32 side by
  // some 20 roundings (11 of the dot, p itself 10 u as above) of terms below
  // scale |g|.
  constexpr size_t kCount = 20;
  constexpr double kScale = 0.5;
  constexpr double kStep = 1e-4;
  constexpr double kBound = 40 * kU * kScale + 2e-9;
  std::vector<float> x = Uniform(kCount, 3, 2);
  std::vector<float> p = x;
  std::vector<float> g = Uniform(kCount, 4);
  std::vector<float> ds = g;
  const auto value = [&](size_t moved, double by) {
    double sum = 0;
    double weighted = 0;
    for (size_t j = 0; j < kCount; ++j) {
      const double e =
          std::exp(kScale * (double{x[j]} + (j == moved ? by : 0.0)));
      sum += e;
      weighted += e * double{g[j]};
    }
    return weighted / sum;
  };

  const OneBlockWave one(1, kCount);
  CausalSoftmaxForward(one.wave(), p, kScale, executor_);
  CausalSoftmaxBackward(one.wave(), {p, p, ds}, kScale, executor_);

  for (size_t i = 0; i < kCount; ++i) {
    const double slope = (value(i, kStep) - value(i, -kStep)) / (2 * kStep);
    EXPECT_NEAR(ds[i], slope, kBound) << i;
  }
}

TEST_F(SoftmaxTest, CausalSoftmaxBackwardZeroesForbiddenEntries) {
  const std::vector<float> p = {1, 0, 0.5f, 0.5f};
  std::vector<float> dp = {5, kNan, 1, 3};

  CausalSoftmaxBackward(OneBlockWave(2, 2).wave(), {p, p, dp}, 2, executor_);

  EXPECT_THAT(dp, ElementsAre(0, 0, -1, 1));
}

TEST_F(SoftmaxTest, CausalSoftmaxBackwardTakesTheMeanOfWhatWasRead) {
  const std::vector<float> p = {0.5f, 0.5f};
  const std::vector<float> read = {0.25f, 0.75f};
  std::vector<float> dp = {1, 3};

  // The mean is 0.25 * 1 + 0.75 * 3 = 2.5.
  CausalSoftmaxBackward(OneBlockWave(1, 2).wave(), {p, read, dp}, 1, executor_);

  EXPECT_THAT(dp, ElementsAre(-0.75f, 0.25f));
}

TEST_F(SwigluTest, RoundsSiluBeforeTheProduct) {
  const float silu = 1.0f * (1 / (1 + std::exp(-1.0f)));  // 0.7310586
  std::vector<float> gate = {0, 200, 1, 1};
  std::vector<float> up = {3, 0.5f, 1.0078125f, 1};
  std::vector<float> h(4);
  std::vector<float> exact(4);

  SwigluForward(Rows(gate, 1), Rows(up, 1), Rounding::kBf16, Rows(h, 1),
                executor_);
  SwigluForward(Rows(gate, 1), Rows(up, 1), Rounding::kFp32, Rows(exact, 1),
                executor_);

  EXPECT_THAT(h, ElementsAre(0, 100,
                             formats::RoundToBf16(formats::RoundToBf16(silu) *
                                                  1.0078125f),
                             formats::RoundToBf16(silu)));
  // Sigmoid is within 3 ulp, one product more.
  EXPECT_NEAR(exact[3], silu, 8 * kU);
}

TEST_F(SwigluTest, BackwardIsTheDerivative) {
  // Steps of 1e-4: the third derivative of silu is below 0.4: 1e-9. In FP32,
  // gate' = ds q (1 + z (1 - q)) has Sigmoid (6 u twice), and 4 roundings of
  // terms below |dh up| (1 + |z|): 16 u (1 + |z|).
  constexpr double kStep = 1e-4;
  std::vector<float> gate = Uniform(64, 5, 8);
  std::vector<float> up = Uniform(64, 6);
  std::vector<float> dh = Uniform(64, 7);
  std::vector<float> dgate(64);
  std::vector<float> dup(64);
  const auto silu = [](double z) { return z / (1 + std::exp(-z)); };

  SwigluBackward(Rows(gate, 1), Rows(up, 1), Rows(dh, 1), Rounding::kFp32,
                 Rows(dgate, 1), Rows(dup, 1), executor_);

  for (size_t i = 0; i < gate.size(); ++i) {
    const double z = gate[i];
    const double slope = (silu(z + kStep) - silu(z - kStep)) / (2 * kStep);
    const double exact = slope * double{dh[i]} * double{up[i]};
    EXPECT_NEAR(dgate[i], exact, 16 * kU * (1 + std::fabs(z)) + 1e-9);
    EXPECT_NEAR(dup[i], silu(z) * double{dh[i]}, 8 * kU * std::fabs(silu(z)));
  }
}

TEST_F(CrossEntropyTest, ByHand) {
  std::vector<float> logits = {1, 1, 5, 5, 100, -100};
  const std::vector<int32_t> labels = {1, kIgnoredLabel, 0};
  std::vector<float> loss(3);
  std::vector<float> dlogits(6);

  CrossEntropy(Rows(logits, 3), labels, 0.5f, Rounding::kFp32, loss,
               Rows(dlogits, 3), executor_);

  EXPECT_THAT(loss, ElementsAre(std::log(2.0f), 0, 0));
  EXPECT_THAT(dlogits, ElementsAre(0.25f, -0.25f, 0, 0, 0, 0));
}

TEST_F(CrossEntropyTest, GradientIsTheDerivative) {
  // loss: Log 2 ulp of at most 4, S within 30 u, m - x exact here to u * 10.
  // Gradient: as the softmax, times grad_scale; differences as in its test.
  constexpr size_t kCount = 33;
  constexpr double kStep = 1e-4;
  constexpr double kGradScale = 0.25;
  std::vector<float> x = Uniform(kCount, 8, 3);
  const std::vector<int32_t> labels = {7};
  std::vector<float> loss(1);
  std::vector<float> dx(kCount);
  const auto value = [&](size_t moved, double by) {
    double sum = 0;
    for (size_t j = 0; j < kCount; ++j) {
      sum += std::exp(double{x[j]} + (j == moved ? by : 0.0));
    }
    return std::log(sum) - (double{x[7]} + (moved == 7 ? by : 0.0));
  };

  CrossEntropy(Rows(x, 1), labels, kGradScale, Rounding::kFp32, loss,
               Rows(dx, 1), executor_);

  EXPECT_NEAR(loss[0], value(0, 0), (2 * 4 * 2 + 30 + 10) * kU);
  for (size_t i = 0; i < kCount; ++i) {
    const double slope = (value(i, kStep) - value(i, -kStep)) / (2 * kStep);
    EXPECT_NEAR(dx[i], kGradScale * slope, kGradScale * 60 * kU + 2e-9) << i;
  }
}

TEST_F(CrossEntropyTest, RejectsALabelOutsideTheVocabulary) {
  std::vector<float> logits(4);
  std::vector<float> loss(2);
  const auto run = [&](int32_t label) {
    CrossEntropy(Rows(logits, 2), std::vector<int32_t>{0, label}, 1,
                 Rounding::kFp32, loss, {}, executor_);
  };

  EXPECT_THROW(run(2), Error);
  EXPECT_THROW(run(-1), Error);
  EXPECT_NO_THROW(run(kIgnoredLabel));
}

}  // namespace
}  // namespace isoloss::kernels::rowwise_activation_test
