#include "isoloss/optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::optim::clip_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double NormOf(std::vector<std::vector<float>> gradients) {
  Executor executor(2);
  std::vector<Tensor> tensors;
  for (std::vector<float>& gradient : gradients) {
    tensors.push_back({.parameter = {}, .gradient = gradient});
  }
  return GlobalNorm(tensors, executor);
}

TEST(GlobalNorm, IsTheNormOverAllTensors) {
  EXPECT_EQ(NormOf({}), 0.0);
  EXPECT_EQ(NormOf({{3.0f, -4.0f}, {}, {12.0f}}), 13.0);
  // Squares leave the range of FP32, their FP64 sum does not.
  EXPECT_EQ(NormOf({{0x1.8p+101f}, {0x1p+102f}, {0.0f}}), 0x1.4p+102);
}

TEST(GlobalNorm, ShowsNonFiniteGradients) {
  EXPECT_TRUE(std::isnan(NormOf({{1.0f}, {2.0f, kNan}, {3.0f}})));
  EXPECT_EQ(NormOf({{1.0f, -kInfinity}, {2.0f}}), kInfinity);
}

TEST(ClipCoefficient, ScalesDownOnly) {
  EXPECT_EQ(ClipCoefficient(0.0, 1.0), 1.0);
  EXPECT_EQ(ClipCoefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(ClipCoefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(ClipCoefficient(4.0, 2.0), 2.0 / (4.0 + 1e-6));
}

TEST(ClipCoefficient, DoesNotHideANonFiniteNorm) {
  EXPECT_TRUE(std::isnan(ClipCoefficient(NormOf({{kNan}}), 1.0)));
  // An infinite gradient times 0 is NaN.
  EXPECT_EQ(ClipCoefficient(NormOf({{kInfinity}}), 1.0), 0.0);
}

}  // namespace
}  // namespace isoloss::optim::clip_test
