#include "isoloss/kernels/elementary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace isoloss::kernels::elementary_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// |given - exact| in units of the spacing of T at `exact`.
template <typename T>
double UlpError(T given, long double exact) {
  using Limits = std::numeric_limits<T>;
  int exponent = 0;
  std::frexp(exact, &exponent);  // exact = [1/2, 1) * 2^exponent
  exponent = std::max(exponent, Limits::min_exponent);
  const long double ulp = std::ldexp(1.0L, exponent - Limits::digits);
  return static_cast<double>(std::fabs(given - exact) / ulp);
}

/// The worst error of `given` against `exact`, whose long double has 11 bits
/// more than a double, over every 1,009th float (exhausts all exponents) whose
/// exact result is finite in T.
template <typename T, typename Given, typename Exact>
double WorstOverFloats(Given given, Exact exact) {
  double worst = 0;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += 1009) {
    const T x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const long double y = exact(static_cast<long double>(x));
    if (!(std::fabs(y) <= std::numeric_limits<T>::max())) continue;
    worst = std::max(worst, UlpError<T>(given(x), y));
  }
  return worst;
}

// Below, u is half an ulp of 1. Limits are what elementary.h promises, or less.
// The lower limits fail if an error measure reads nothing: no function here is
// correctly rounded.

TEST(ExpTest, IsWithinTwoUlpOnFloats) {
  // r carries 0.25 ulp of the result (|r| < 0.35 rounds to 2^-26), so does the
  // sum r + r^2 q; q and r^2 add 0.2, Taylor 0.1 and the last addition 0.5.
  // Where the result is subnormal, these shrink to nothing and the scaling
  // rounds by 0.5.
  const double worst =
      WorstOverFloats<float>([](float x) { return Exp(x); },
                             [](long double x) { return std::exp(x); });

  EXPECT_LE(worst, 1.3);
  EXPECT_GT(worst, 0.5);
}

TEST(ExpTest, IsWithinTwoUlpOnDoubles) {
  // As above; floats as arguments reach every magnitude that matters.
  const double worst =
      WorstOverFloats<double>([](double x) { return Exp(x); },
                              [](long double x) { return std::exp(x); });

  EXPECT_LE(worst, 1.3);
  EXPECT_GT(worst, 0.5);
}

TEST(ExpTest, UnderflowsGraduallyAndOverflowsToInfinity) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(-1000.0f), 0.0f);
  EXPECT_EQ(Exp(-103.0f), 0x1p-149f);  // e^-103 = 1.3 * 2^-149
  EXPECT_EQ(Exp(std::nextafter(88.72284f, 89.0f)), kInf);  // > ln FLT_MAX
  EXPECT_LT(Exp(88.72283f), kInf);
  EXPECT_EQ(std::bit_cast<uint32_t>(Exp(-kNan)), 0x7FC00000u);
  EXPECT_EQ(Exp(-1e5), 0.0);
  EXPECT_EQ(Exp(1e5), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp(-745.0), 0x1p-1074);
}

TEST(LogTest, IsWithinTwoUlpOnFloats) {
  // f is exact; s (f - R) <= 0.17 |f| carries at most 4 u of itself, 0.7 ulp of
  // the result; the last subtraction and the addition of e ln 2 round by 0.5
  // each.
  const double worst = WorstOverFloats<float>(
      [](float x) { return x > 0 ? Log(x) : kNan; },
      [](long double x) { return x > 0 ? std::log(x) : x / 0.0L; });

  EXPECT_LE(worst, 2.0);
  EXPECT_GT(worst, 0.5);
}

TEST(LogTest, IsWithinTwoUlpOnDoubles) {
  const double worst = WorstOverFloats<double>(
      [](double x) { return x > 0 ? Log(x) : std::nan(""); },
      [](long double x) { return x > 0 ? std::log(x) : x / 0.0L; });

  EXPECT_LE(worst, 2.0);
  EXPECT_GT(worst, 0.5);
}

TEST(LogTest, TreatsSpecialArgumentsAsStated) {
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0f), -kInf);
  EXPECT_EQ(Log(-0.0f), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_EQ(std::bit_cast<uint32_t>(Log(-1.0f)), 0x7FC00000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Log(-kNan)), 0x7FC00000u);
  EXPECT_LE(UlpError<float>(Log(0x1p-149f), -149 * std::log(2.0L)), 0.5);
  EXPECT_LE(UlpError<double>(Log(0x1p-1074), -1074 * std::log(2.0L)), 0.5);
}

TEST(SigmoidTest, IsWithinThreeUlp) {
  // Exp 1.3 ulp, the addition and the division 0.5 each, and a factor below two
  // where the quotient lies just above a power of two. Where Exp is subnormal
  // the quotient is e itself.
  const double worst = WorstOverFloats<float>(
      [](float x) { return Sigmoid(x); },
      [](long double x) { return 1 / (1 + std::exp(-x)); });

  EXPECT_LE(worst, 3.0);
  EXPECT_GT(worst, 0.5);
}

TEST(SigmoidTest, SaturatesWithoutOverflow) {
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInf), 1.0f);
  EXPECT_EQ(Sigmoid(-kInf), 0.0f);
  EXPECT_EQ(Sigmoid(200.0f), 1.0f);
  EXPECT_GT(Sigmoid(-100.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

TEST(RsqrtTest, IsAReciprocalOfARoot) {
  EXPECT_EQ(Rsqrt(4.0f), 0.5f);
  EXPECT_EQ(Rsqrt(0.0f), kInf);
  EXPECT_EQ(Rsqrt(2.0f), 1.0f / std::sqrt(2.0f));
}

TEST(SinCosTest, IsWithinAnUlpOfOneUpToTheLongestSequence) {
  // The reduced angle, the product in the last FMA and its result are each off
  // by at most half an ulp of 1 (2^-53); they do not all reach it at once.
  double worst = 0;
  constexpr int kLongest = 1 << 20;
  for (int i = -kLongest; i <= kLongest; ++i) {
    const double x = i / 1.00001;
    double sin = 0;
    double cos = 0;
    SinCos(x, &sin, &cos);
    const auto exact = static_cast<long double>(x);
    worst =
        std::max(worst, static_cast<double>(std::fabs(sin - std::sin(exact))));
    worst =
        std::max(worst, static_cast<double>(std::fabs(cos - std::cos(exact))));
  }

  EXPECT_LE(worst, 0x1p-52);
  EXPECT_GT(worst, 0x1p-54);
}

TEST(SinCosTest, IsExactAtZero) {
  double sin = 1;
  double cos = 0;
  SinCos(0.0, &sin, &cos);

  EXPECT_EQ(sin, 0.0);
  EXPECT_EQ(cos, 1.0);
}

}  // namespace
}  // namespace isoloss::kernels::elementary_test
