#include "isoloss/stats/normality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/summary.h"
#include "simulation.h"

namespace isoloss::stats::normality_test {
namespace {

/// The textbook sum, without Stephens' factor.
double SquaredA(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const Summary summary = Summarize(values);
  const size_t n = values.size();
  const auto cdf = [&](double x) {
    return std::erfc((summary.mean - x) / summary.sd / std::sqrt(2.0)) / 2;
  };
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += static_cast<double>(2 * i + 1) *
           (std::log(cdf(values[i])) + std::log1p(-cdf(values[n - 1 - i])));
  }
  return -static_cast<double>(n) - sum / static_cast<double>(n);
}

// Sums of 10 terms of up to 20, times 10: 1e-12 leaves some 50 roundings.
TEST(AndersonDarling, MatchesTheTextbookSum) {
  const std::vector<double> values = {0.2, 0.5, 1.4, -0.3, 0.9,
                                      2.7, 0.1, 0.4, -1.1, 6.0};
  const double factor = 1 + 0.75 / 10 + 2.25 / 100;

  EXPECT_NEAR(AndersonDarling(values).statistic, factor * SquaredA(values),
              1e-12);
}

// Stephens' formula is good to 0.002.
TEST(AndersonDarling, RejectsNormalSamplesAtItsLevel) {
  constexpr int kTrials = 5000;
  for (const int count : {8, 30}) {
    for (const double level : {0.05, 0.2}) {
      Normal normal("normality");
      int rejected = 0;
      for (int trial = 0; trial < kTrials; ++trial) {
        const auto sample = normal.Sample(count, 3, 0.1);
        rejected += AndersonDarling(sample).p_value <= level ? 1 : 0;
      }

      EXPECT_NEAR(static_cast<double>(rejected) / kTrials, level,
                  FourSigma(level, kTrials) + 0.002);
    }
  }
}

TEST(AndersonDarling, SeesASkewedSample) {
  Normal normal("skewed");
  std::vector<double> values = normal.Sample(60);
  for (double& value : values) value = std::exp(value);

  EXPECT_LT(AndersonDarling(values).p_value, 1e-4);
}

TEST(AndersonDarling, CallsEqualValuesAndHugeOutliersNotNormal) {
  std::vector<double> values(2000, 1);
  EXPECT_EQ(AndersonDarling(values).p_value, 0);

  values[0] = 1e6;
  EXPECT_EQ(AndersonDarling(values).p_value, 0);
}

TEST(AndersonDarling, RefusesTooFewOrNoNumbers) {
  EXPECT_THROW(AndersonDarling(std::vector<double>{1, 2, 3, 4, 5, 6, 7}),
               Error);
  EXPECT_THROW(
      AndersonDarling(std::vector<double>{1, 2, 3, 4, 5, 6, 7, std::nan("")}),
      Error);
}

}  // namespace
}  // namespace isoloss::stats::normality_test
