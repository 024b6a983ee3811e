#include "isoloss/oracle/estimate_math.h"

#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/base/rng.h"

namespace isoloss::oracle::estimate_math_test {
namespace {

constexpr double kU = kUnitRoundoff;

Sum32 SumOf(std::initializer_list<Estimate> terms) {
  Sum32 sum;
  for (const Estimate& term : terms) sum.Add(term);
  return sum;
}

TEST(LowestBit, IsTheUnitOfANumber) {
  EXPECT_EQ(LowestBit(1.0), 1.0);
  EXPECT_EQ(LowestBit(-6.0), 2.0);
  EXPECT_EQ(LowestBit(0.15625), 0x1p-5);
  EXPECT_EQ(LowestBit(1.0 + 0x1p-52), 0x1p-52);
  EXPECT_EQ(LowestBit(0x1p-149), 0x1p-149);  // FP32's smallest
  EXPECT_TRUE(std::isinf(LowestBit(0.0)));
  EXPECT_EQ(LowestBit(std::nan("")), 0.0);
  EXPECT_EQ(LowestBit(HUGE_VAL), 0.0);
}

TEST(Sum32, NothingRoundsWhereAllPartialSumsFit) {
  // Multiples of 2^-3 whose sizes add up to 2^21 units.
  const Estimate sum =
      SumOf({Exactly(0x1p17), Exactly(-0.125), Exactly(0x1p16)}).Value();

  EXPECT_EQ(sum.exact, 0x1p17 + 0x1p16 - 0.125);
  EXPECT_EQ(sum.bound, 0.0);
  EXPECT_EQ(sum.noise, 0.0);
}

TEST(Sum32, BoundsWhatAnyOrderMayRound) {
  // 1 + 2^-24 - 1: 0 or 2^-24, as the order wants.
  const Estimate sum =
      SumOf({Exactly(1.0), Exactly(0x1p-24), Exactly(-1.0)}).Value();

  EXPECT_EQ(sum.exact, 0x1p-24);
  EXPECT_GE(sum.bound, 0x1p-24);
  EXPECT_LE(sum.bound, 3.01 * kU * (2 + 0x1p-24));
}

TEST(Sum32, HoldsForRandomNumbersInEitherDirection) {
  const CounterRng rng(7, 0);
  double noise = 0.0;
  double bound = 0.0;
  for (uint64_t trial = 0; trial < 200; ++trial) {
    float up = 0.0f;
    float down = 0.0f;
    Sum32 sum;
    const auto value = [&](uint64_t i) {
      return static_cast<float>(rng.Below(trial * 20 + i, 2'000'001)) * 1e-6f -
             1.0f;
    };
    for (uint64_t i = 0; i < 20; ++i) {
      up += value(i);
      down += value(19 - i);
      sum.Add(Exactly(static_cast<double>(value(i))));
    }
    const Estimate expected = sum.Value();
    for (const float result : {up, down}) {
      EXPECT_LE(std::fabs(static_cast<double>(result) - expected.exact),
                expected.bound);
    }
    noise += expected.noise;
    bound += expected.bound;
  }
  // Far below the worst case, but not nothing.
  EXPECT_GT(noise, bound / 1000);
  EXPECT_LT(noise, bound / 4);
}

TEST(Product, CarriesBothErrors) {
  const Estimate product =
      Product({.exact = 3.0, .bound = 0.5}, {.exact = -2.0, .bound = 0.25});

  EXPECT_EQ(product.exact, -6.0);
  EXPECT_EQ(product.bound, 3.0 * 0.25 + 2.0 * 0.5 + 0.5 * 0.25);
  // 3.5 * -2.25 is as far off as it gets.
  EXPECT_EQ(product.bound, std::fabs(3.5 * -2.25 + 6.0));
}

TEST(Quotient, CarriesBothErrorsAndGivesUpNearZero) {
  const Estimate a = {.exact = 3.0, .bound = 0.5};
  const Estimate quotient = Quotient(a, {.exact = 2.0, .bound = 0.25});

  EXPECT_EQ(quotient.exact, 1.5);
  EXPECT_GE(quotient.bound, 3.5 / 1.75 - 1.5);
  EXPECT_LE(quotient.bound, 0.51);  // sharp: it is 0.5
  EXPECT_TRUE(std::isinf(Quotient(a, {.exact = 1.0, .bound = 1.0}).bound));
}

TEST(SquareRoot, BoundsTheErrorAlsoAtZero) {
  const Estimate root = SquareRoot({.exact = 4.0, .bound = 1.0});
  const Estimate zero = SquareRoot({.exact = 0.0, .bound = 1e-4});

  EXPECT_EQ(root.exact, 2.0);
  EXPECT_GE(root.bound, 2.0 - std::sqrt(3.0));
  EXPECT_LE(root.bound, 0.5);
  EXPECT_DOUBLE_EQ(zero.bound, 0.01);
}

TEST(Operation32, LeavesExactNumbersAlone) {
  EXPECT_EQ(Operation32(Exactly(0.5)).bound, 0.0);
  EXPECT_GT(Operation32(Exactly(0.1)).bound, 0.0);
  EXPECT_EQ(LastOperation32(Grid::kFp32, Exactly(0.1)).bound, 0.0);
  EXPECT_GT(LastOperation32(Grid::kBf16, Exactly(0.1)).bound, 0.0);
}

}  // namespace
}  // namespace isoloss::oracle::estimate_math_test
