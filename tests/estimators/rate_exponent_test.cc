#include "isoloss/estimators/rate_exponent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace isoloss::estimators::rate_exponent_test {
namespace {

using ::testing::HasSubstr;

TEST(RateExponent, IsTheSlopeInLogarithms) {
  // Half the rate at twice the width is -1, at four times the width -1/2. The
  // quotients of logarithms of powers of two are off by FP64 roundings alone.
  EXPECT_NEAR(ExponentBetween({64, 0.01, {0.01}}, {128, 0.005, {0.005}}).value,
              -1, 1e-12);
  EXPECT_NEAR(ExponentBetween({64, 0.01, {0.01}}, {256, 0.005, {0.005}}).value,
              -0.5, 1e-12);
  EXPECT_EQ(ExponentBetween({64, 0.01, {0.01}}, {256, 0.01, {0.01}}).value, 0);
}

TEST(RateExponent, DoesNotDependOnTheOrderOfTheWidths) {
  const RateExponent exponent =
      ExponentBetween({256, 0.005, {0.005}}, {64, 0.01, {0.01}});

  EXPECT_NEAR(exponent.value, -0.5, 1e-12);
  EXPECT_EQ(exponent.why_assumed, "");
}

TEST(RateExponent, HasTheExtremesOfSingleSeeds) {
  // Over four times the width 1 falls to 0.5, and 2 to 0.3.
  const RateExponent exponent =
      ExponentBetween({64, 1, {1, 2}}, {256, 0.25, {0.5, 0.3}});

  EXPECT_NEAR(exponent.value, -1, 1e-12);
  EXPECT_NEAR(exponent.least, std::log(0.3 / 2) / std::log(4), 1e-12);
  EXPECT_NEAR(exponent.largest, -0.5, 1e-12);
}

TEST(RateExponent, IsAssumedIfASingleSeedGivesOneOutsideOfTheRange) {
  // The powers of two of one seed, -4 and 1, are halved.
  for (const double of_seed : {0.0625, 2.0}) {
    const RateExponent exponent =
        ExponentBetween({64, 1, {1}}, {256, 0.5, {0.5, of_seed}});

    EXPECT_EQ(exponent.value, -0.5);
    EXPECT_THAT(exponent.why_assumed, HasSubstr("single seeds give powers"));
  }
}

TEST(RateExponent, IsAssumedIfNobodyKnowsTheSeeds) {
  for (const RateExponent& exponent :
       {ExponentBetween({64, 1}, {256, 0.5}),
        ExponentBetween({64, 1, {1, 2}}, {256, 0.5})}) {
    EXPECT_EQ(exponent.value, -0.5);
    EXPECT_THAT(exponent.why_assumed, HasSubstr("nobody knows how far"));
  }
}

TEST(RateExponent, IsAssumedIfTheWidthsLieTooNear) {
  // 1.4 times 80 is 112.
  EXPECT_TRUE(WidthsTellExponent(80, 112));
  EXPECT_TRUE(WidthsTellExponent(112, 80));
  EXPECT_FALSE(WidthsTellExponent(80, 111));

  const RateExponent exponent = ExponentBetween({80, 1}, {111, 0.8});

  EXPECT_EQ(exponent.value, -0.5);
  EXPECT_TRUE(std::isinf(exponent.least));
  EXPECT_THAT(exponent.why_assumed, HasSubstr("80 and 111, differ by less"));
}

TEST(RateExponent, IsAssumedIfItLiesOutsideOfTheRange) {
  // Powers of two of the rate at four times the width are halved.
  EXPECT_EQ(
      ExponentBetween({64, 1, {1}}, {256, std::exp2(-2.99), {std::exp2(-2.99)}})
          .why_assumed,
      "");
  EXPECT_EQ(
      ExponentBetween({64, 1, {1}}, {256, std::exp2(0.49), {std::exp2(0.49)}})
          .why_assumed,
      "");
  for (const double power : {-3.01, 0.51}) {
    const RateExponent exponent = ExponentBetween(
        {64, 1, {1}}, {256, std::exp2(power), {std::exp2(power)}});

    EXPECT_EQ(exponent.value, -0.5);
    EXPECT_THAT(exponent.why_assumed, HasSubstr("outside [-1.5, 0.25]"));
  }
}

}  // namespace
}  // namespace isoloss::estimators::rate_exponent_test
