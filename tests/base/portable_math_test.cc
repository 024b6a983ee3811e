// Elementary functions against the same in 100 digits.
#include "isoloss/base/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/math/special_functions/erf.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::portable::portable_math_test {
namespace {

using Exact = boost::multiprecision::cpp_bin_float_100;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// |found - exact| in units of the last place of `exact`.
double ErrorInUlps(double found, const Exact& exact) {
  if (exact == 0) return found == 0 ? 0 : kInfinity;
  const int exponent = std::max(std::ilogb(exact.convert_to<double>()), -1022);
  const Exact difference = boost::multiprecision::abs(Exact(found) - exact);
  return boost::multiprecision::ldexp(difference, 52 - exponent)
      .convert_to<double>();
}

/// What portable_math.h promises.
constexpr double kBound = 0.5 + 0x1p-40;

/// Positive numbers of every size, powers of two and ten, and what is near 1,
/// where a logarithm has few digits.
std::vector<double> Positives() {
  std::vector<double> numbers = {std::numeric_limits<double>::denorm_min(),
                                 std::numeric_limits<double>::max(),
                                 0x1p-1022,
                                 0x1.6a09e667f3bccp-1,
                                 0x1.6a09e667f3bcdp-1,
                                 0x1.6a09e667f3bcep-1};
  for (int i = -300; i <= 300; ++i) {
    numbers.push_back(std::ldexp(1.0, i));
    numbers.push_back(std::stod("1e" + std::to_string(i)));
  }
  const CounterRng rng(7, StreamId("portable_math"));
  for (uint64_t i = 0; i < 3000; ++i) {
    const double mantissa = 1 + rng.Uniform(2 * i);
    const auto exponent = static_cast<int>(rng.Below(2 * i + 1, 2098)) - 1074;
    numbers.push_back(std::ldexp(mantissa, exponent));
    numbers.push_back(mantissa);
    numbers.push_back(1 - std::ldexp(mantissa, -2 - static_cast<int>(i % 52)));
    numbers.push_back(1 + std::ldexp(mantissa, -1 - static_cast<int>(i % 52)));
  }
  return numbers;
}

TEST(PortableMath, LogarithmsAreRoundedToNearest) {
  for (const double x : Positives()) {
    ASSERT_LE(ErrorInUlps(Log(x), log(Exact(x))), kBound) << x;
    ASSERT_LE(ErrorInUlps(Log2(x), log2(Exact(x))), kBound) << x;
    ASSERT_LE(ErrorInUlps(Log10(x), log10(Exact(x))), kBound) << x;
  }
}

TEST(PortableMath, PowersOfTheBaseHaveExactLogarithms) {
  for (int i = -1074; i < 1024; ++i) {
    ASSERT_EQ(Log2(std::ldexp(1.0, i)), i);
  }
  for (int i = 0; i <= 22; ++i) {  // which are exact numbers
    ASSERT_EQ(Log10(std::stod("1e" + std::to_string(i))), i);
  }
}

TEST(PortableMath, LogarithmsOfSpecialValues) {
  for (double (*function)(double) : {&Log, &Log2, &Log10}) {
    EXPECT_EQ(function(0.0), -kInfinity);
    EXPECT_EQ(function(-0.0), -kInfinity);
    EXPECT_EQ(function(kInfinity), kInfinity);
    EXPECT_EQ(function(1.0), 0.0);
    EXPECT_FALSE(std::signbit(function(1.0)));
    EXPECT_TRUE(std::isnan(function(-1.0)));
    EXPECT_TRUE(std::isnan(function(-kInfinity)));
    EXPECT_TRUE(std::isnan(function(kNan)));
  }
}

/// Of both signs, up to `largest`, most of them small.
std::vector<double> Arguments(double largest) {
  std::vector<double> numbers = {0, -0.0, 0.25, -0.25, largest, -largest};
  const CounterRng rng(9, StreamId("portable_math/arguments"));
  for (uint64_t i = 0; i < 3000; ++i) {
    const double size = std::ldexp(largest, -static_cast<int>(i % 60));
    numbers.push_back(size * (2 * rng.Uniform(i) - 1));
  }
  return numbers;
}

TEST(PortableMath, ExponentialsAreRoundedToNearest) {
  for (const double x : Arguments(700)) {
    ASSERT_LE(ErrorInUlps(Exp(x), exp(Exact(x))), kBound) << x;
    ASSERT_LE(ErrorInUlps(Expm1(x), expm1(Exact(x))), kBound) << x;
  }
  for (int i = 0; i < 103; ++i) {
    const double x = -746 + 0.37 * i;  // subnormal, rounded twice
    ASSERT_LE(ErrorInUlps(Exp(x), exp(Exact(x))), 1.0) << x;
  }
  EXPECT_EQ(Exp(709.78), exp(Exact(709.78)).convert_to<double>());
  EXPECT_EQ(Exp(709.79), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0.0);
  EXPECT_EQ(Expm1(-kInfinity), -1.0);
  EXPECT_EQ(Expm1(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(kNan)) && std::isnan(Expm1(kNan)));
}

// Nearly all of these are decided in fewer bits.
TEST(PortableMath, ExponentialsAreThoseOfTheLongWay) {
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  const CounterRng rng(11, 0);
  for (const double largest :
       {1e-300, 1e-9, 1e-5, 0x1p-7, 0.1, 1.0, 30.0, 700.0, 750.0}) {
    for (uint64_t i = 0; i < 4000; ++i) {
      const double x = largest * (2 * rng.Uniform(i) - 1);
      ASSERT_EQ(bits(Exp(x)), bits(ExpLongWay(x))) << x;
      ASSERT_EQ(bits(Expm1(x)), bits(Expm1LongWay(x))) << x;
    }
  }
  for (const double x : {0.0, -0.0, 0x1p-1074, -0x1p-1074, 0x1p-7, -0x1p-7,
                         0x1p-400, std::numbers::ln2, -std::numbers::ln2}) {
    EXPECT_EQ(bits(Exp(x)), bits(ExpLongWay(x))) << x;
    EXPECT_EQ(bits(Expm1(x)), bits(Expm1LongWay(x))) << x;
  }
}

TEST(PortableMath, PowersAreRoundedToNearest) {
  for (const double base : {0.9, 0.95, 0.999, 2.0, 10.0, 1e4, 5e5, 1e-3}) {
    for (const double exponent : Arguments(50)) {
      ASSERT_LE(ErrorInUlps(Pow(base, exponent), pow(Exact(base), exponent)),
                0.5 + 0x1p-30)
          << base << "^" << exponent;
    }
  }
  EXPECT_EQ(Pow(10, 22), 1e22);
  EXPECT_EQ(Pow(2, -1000), 0x1p-1000);
  EXPECT_EQ(Pow(2, 1025), kInfinity);
  EXPECT_EQ(Pow(2, -1100), 0.0);
  EXPECT_EQ(Pow(2, kInfinity), kInfinity);
  EXPECT_EQ(Pow(2, -kInfinity), 0.0);
  EXPECT_EQ(Pow(0.5, 1e308), 0.0);
  EXPECT_EQ(Pow(1, kInfinity), 1.0);
  EXPECT_EQ(Pow(1 + 0x1p-52, 1e19), kInfinity);
  EXPECT_TRUE(std::isnan(Pow(2, kNan)));
}

TEST(PortableMath, SineAndCosineAreRoundedToNearest) {
  const auto error = [](double found, const Exact& exact) {
    const double ulp =
        std::ldexp(1.0, std::ilogb(exact.convert_to<double>()) - 52);
    return boost::multiprecision::abs(Exact(found) - exact)
               .convert_to<double>() -
           kBound * ulp;
  };
  for (const double x : Arguments(0x1p20)) {
    if (x == 0) continue;
    ASSERT_LE(error(Sin(x), sin(Exact(x))), 0x1p-80) << x;
    ASSERT_LE(error(Cos(x), cos(Exact(x))), 0x1p-80) << x;
  }
  EXPECT_EQ(Sin(0), 0.0);
  EXPECT_EQ(Cos(0), 1.0);
}

TEST(PortableMath, ErrorFunctionHasTheBoundThatItStates) {
  // As boost::math has it for 50 digits and more.
  for (int i = 0; i < 2336; ++i) {
    const double x = -6 + 0.0137 * i;
    const Exact exact = boost::math::erfc(Exact(x));
    const Exact error = boost::multiprecision::abs(Exact(Erfc(x)) / exact - 1);
    ASSERT_LE(error.convert_to<double>(), 0x1p-49) << x;
  }
  EXPECT_EQ(Erfc(0), 1.0);
  EXPECT_EQ(Erfc(kInfinity), 0.0);
  EXPECT_EQ(Erfc(-kInfinity), 2.0);
  EXPECT_TRUE(std::isnan(Erfc(kNan)));
}

}  // namespace
}  // namespace isoloss::portable::portable_math_test
