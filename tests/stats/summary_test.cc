#include "isoloss/stats/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::stats::summary_test {
namespace {

TEST(Sum, KeepsSmallTermsBesideHugeOnesThatCancel) {
  const std::vector<double> values = {1.0, 1e100, 1.0, -1e100};

  EXPECT_EQ(Sum(values), 2.0);
}

// NIST StRD, univariate, NumAcc1: certified mean 10000002, sd 1.
TEST(Summarize, MatchesNistNumAcc1) {
  const std::vector<double> values = {10000001, 10000003, 10000002};

  const Summary summary = Summarize(values);

  EXPECT_EQ(summary.count, 3);
  EXPECT_EQ(summary.mean, 10000002.0);
  EXPECT_EQ(summary.sd, 1.0);
}

// NIST StRD, univariate, NumAcc4 ("higher level of difficulty"): certified mean
// 10000000.2, sd 0.1.
TEST(Summarize, MatchesNistNumAcc4) {
  std::vector<double> values = {10000000.2};
  for (int i = 0; i < 500; ++i) {
    values.push_back(10000000.1);
    values.push_back(10000000.3);
  }

  const Summary summary = Summarize(values);

  // Each value and the mean are rounded to multiples of 2^-29, an error of at
  // most 2^-30 each; a deviation holds two such errors.
  EXPECT_NEAR(summary.mean, 10000000.2, std::ldexp(1, -29));
  EXPECT_NEAR(summary.sd, 0.1, std::ldexp(1, -29));
}

TEST(Summarize, HasNoSpreadForEqualValues) {
  const Summary summary = Summarize(std::vector<double>(7, 0.1));

  EXPECT_EQ(summary.mean, 0.1);
  EXPECT_EQ(summary.sd, 0.0);
}

TEST(Summarize, KnowsNoSpreadOfOneValueAndNoMeanOfNone) {
  EXPECT_EQ(Summarize(std::vector<double>{5.0}).mean, 5.0);
  EXPECT_TRUE(std::isnan(Summarize(std::vector<double>{5.0}).sd));
  EXPECT_TRUE(std::isnan(Summarize({}).mean));
}

TEST(Summarize, IsNanWhenAValueIsNotFinite) {
  for (const double bad : {std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    const Summary summary = Summarize(std::vector<double>{1.0, bad, 2.0});

    EXPECT_TRUE(std::isnan(summary.mean)) << bad;
    EXPECT_TRUE(std::isnan(summary.sd)) << bad;
  }
}

}  // namespace
}  // namespace isoloss::stats::summary_test
