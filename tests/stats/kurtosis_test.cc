#include "isoloss/stats/kurtosis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::stats::kurtosis_test {
namespace {

TEST(Kurtosis, IsThatOfSmallSamples) {
  // One of n differs: n - 2 + 1 / (n - 1). All of these sums are exact but for
  // the last division and those of the mean, some 1e-15 in all.
  EXPECT_NEAR(Kurtosis(std::vector<float>{0, 0, 0, 1}), 2 + 1.0 / 3, 1e-14);
  EXPECT_NEAR(Kurtosis(std::vector<float>{7, 7, -2, 7, 7}), 3.25, 1e-14);
  // Two values that are equally frequent have the least.
  EXPECT_EQ(Kurtosis(std::vector<float>{-1, 1, 1, -1}), 1);
}

TEST(Kurtosis, IsTheDirectFormulaWhateverTheMean) {
  std::vector<float> values;
  for (int i = 0; i < 500; ++i) {
    // Multiples of 1/8 below 2^9: FP32 holds them and their shifted likes.
    values.push_back(static_cast<float>((i * 7919) % 4001) / 8);
  }
  for (const float shift : {0.0F, 65536.0F}) {
    std::vector<float> shifted;
    long double sum = 0;
    for (const float value : values) {
      shifted.push_back(value + shift);
      sum += static_cast<long double>(shifted.back());
    }
    const long double mean = sum / 500;
    long double second = 0;
    long double fourth = 0;
    for (const float value : shifted) {
      const long double d = static_cast<long double>(value) - mean;
      second += d * d / 500;
      fourth += d * d * d * d / 500;
    }

    // 500 additions of FP64 each, and a mean that is off by 1e-11 relative to
    // the spread at most.
    EXPECT_NEAR(Kurtosis(shifted),
                static_cast<double>(fourth / (second * second)), 1e-9);
  }
}

TEST(Kurtosis, IsNotDefinedWithoutASpread) {
  EXPECT_TRUE(std::isnan(Kurtosis({})));
  EXPECT_TRUE(std::isnan(Kurtosis(std::vector<float>{2, 2, 2})));
  EXPECT_TRUE(std::isnan(
      Kurtosis(std::vector<float>{1, std::numeric_limits<float>::infinity()})));
}

}  // namespace
}  // namespace isoloss::stats::kurtosis_test
