#include "isoloss/base/portable_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include "isoloss/base/double_double.h"
#include "isoloss/base/error.h"

namespace isoloss::portable {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Each low part holds the rounded rest that the double of std::numbers lacks.
constexpr DoubleDouble kLn2 = {std::numbers::ln2, 0x1.abc9e3b39803fp-56};
constexpr DoubleDouble kLog2E = {std::numbers::log2e, 0x1.777d0ffda0d24p-56};
constexpr DoubleDouble kLog10E = {std::numbers::log10e, 0x1.95355baaafad3p-57};
constexpr DoubleDouble kHalfPi = {std::numbers::pi / 2, 0x1.1a62633145c07p-54};

DoubleDouble Twofold(double x) { return {x}; }

/// x = mantissa * 2^exponent, mantissa in [sqrt(1/2), sqrt(2)).
struct Scaled {
  double mantissa;
  int exponent;
};

Scaled Scale(double x) {
  Scaled scaled = {};
  scaled.mantissa = std::frexp(x, &scaled.exponent);  // [1/2, 1)
  if (scaled.mantissa < std::numbers::sqrt2 / 2) {
    scaled.mantissa *= 2;
    --scaled.exponent;
  }
  return scaled;
}

/// ln(mantissa) = 2 atanh(s), s = (mantissa - 1) / (mantissa + 1), which is
/// 2 s sum over k of z^k / (2 k + 1), z = s^2 < 0.0295. The first power left
/// out, z^21 / 43, is below 2^-112 of the sum.
DoubleDouble LogOfMantissa(double mantissa) {
  const DoubleDouble s = DoubleDouble{mantissa - 1} / TwoSum(mantissa, 1);
  const DoubleDouble z = s * s;
  DoubleDouble sum;
  for (int k = 20; k >= 0; --k) {
    sum = sum * z + DoubleDouble{1} / DoubleDouble{2.0 * k + 1};
  }
  return s * sum * DoubleDouble{2};
}

DoubleDouble LogOf(double x) {
  const Scaled scaled = Scale(x);
  return Twofold(scaled.exponent) * kLn2 + LogOfMantissa(scaled.mantissa);
}

/// Is the logarithm of x none that a series gives? Then it is `result`.
bool IsSpecial(double x, double& result) {
  if (x > 0 && x < kInfinity) return false;
  result = x == 0 ? -kInfinity : x > 0 ? x : kNan;
  return true;
}

// See Expm1OfRest.
constexpr int kExpTerms = 24;
constexpr int kTwofoldExpTerms = 11;

/// 1 / n!
const std::array<DoubleDouble, kExpTerms + 1>& InverseFactorials() {
  static const auto factors = [] {
    std::array<DoubleDouble, kExpTerms + 1> result;
    result[0] = {1};
    for (size_t n = 1; n < result.size(); ++n) {
      result[n] = result[n - 1] / Twofold(static_cast<double>(n));
    }
    return result;
  }();
  return factors;
}

/// The sum over n >= first of r^(n - first) / n! in 53 bits, |r| <= ln(2) / 2.
/// It ends with n = kExpTerms; r^25 / 25! is below 2^-121.
double ExpTail(double r, int first) {
  const auto& factors = InverseFactorials();
  double sum = factors[kExpTerms].high;
  for (int n = kExpTerms - 1; n >= first; --n) {
    sum = std::fma(sum, r, factors[static_cast<size_t>(n)].high);
  }
  return sum;
}

/// e^r - 1, |r| <= ln(2) / 2. The terms from r^12 / 12! on are at most
/// 0.3466^11 / 12! < 2^-45 of the result, so that 53 bits of them are enough
/// for 2^-96 of it.
DoubleDouble Expm1OfRest(DoubleDouble r) {
  const auto& factors = InverseFactorials();
  DoubleDouble sum = {ExpTail(r.high, kTwofoldExpTerms + 1)};
  for (size_t n = kTwofoldExpTerms; n >= 1; --n) sum = sum * r + factors[n];
  return sum * r;
}

/// e^x = significand * 2^exponent, |x| <= 800.
struct Power {
  DoubleDouble significand;
  int exponent;
};

Power ExpOf(DoubleDouble x) {
  const double n = std::nearbyint(x.high * std::numbers::log2e);
  const DoubleDouble rest = x - Twofold(n) * kLn2;
  return {Twofold(1) + Expm1OfRest(rest), static_cast<int>(n)};
}

double Rounded(DoubleDouble x) {
  if (x.high > 710) return kInfinity;
  if (x.high < -746) return 0;
  const Power power = ExpOf(x);
  return std::ldexp(power.significand.high, power.exponent);
}

// ---- the quick way
// A sum of two doubles that is off by less than a known error usually tells how
// the number behind it rounds, and then the long way, which is more accurate
// still, rounds to the same.

/// Sets `result` to the double nearest to all numbers within `error` of
/// high + low, if there is one; |low| <= |high|.
bool RoundsTo(double high, double low, double error, double& result) {
  result = high + (low - error);
  return result == high + (low + error);
}

/// 2^(i / 32) to 24 + 53 bits. Products of `high` and 26 bits are exact.
struct Root {
  double high;
  double low;
};
constexpr int kRoots = 32;

const std::array<Root, kRoots>& Roots() {
  static const auto roots = [] {
    std::array<Root, kRoots> result;
    for (int i = 0; i < kRoots; ++i) {
      const Power power =
          ExpOf(Twofold(static_cast<double>(i) / kRoots) * kLn2);
      const DoubleDouble root = {
          std::ldexp(power.significand.high, power.exponent),
          std::ldexp(power.significand.low, power.exponent)};
      const auto high = static_cast<double>(static_cast<float>(root.high));
      result[static_cast<size_t>(i)] = {high, (root - DoubleDouble{high}).high};
    }
    return result;
  }();
  return roots;
}

/// e^x for |x| < 700, whose result is normal.
bool QuickExp(double x, double& result) {
  // 1.5 2^52: what is added to it is rounded to an integer.
  constexpr double kToInteger = 0x1.8p52;
  // ln(2) / 32 in two parts: multiples of the first below 2^15 are exact, and
  // so is what they leave of x.
  constexpr double kStep = std::numbers::ln2 / kRoots;
  constexpr double kStepHigh = 0x1.62e42fefap-6;
  constexpr double kStepLow = 0x1.cf79abc9e3b3ap-45;
  const double n = x * (1 / kStep) + kToInteger - kToInteger;
  const double high = x - n * kStepHigh;
  const double low = -(n * kStepLow);
  const DoubleDouble r = TwoSum(high, low);  // |r| < 0.011
  // e^r - 1 - r
  const double z = r.high;
  const double rest =
      z * z *
      (0.5 + z * (1.0 / 6 + z * (1.0 / 24 + z * (1.0 / 120 +
                                                 z * (1.0 / 720 + z / 5040)))));
  const auto whole = static_cast<int>(n);
  const Root& root = Roots()[static_cast<size_t>(whole & (kRoots - 1))];
  // root.high has 24 bits, the first part of r 26.
  constexpr double kSplit = 0x1p27 + 1;
  const double scaled = z * kSplit;
  const double front = scaled - (scaled - z);
  const double back = z - front;
  const double product = root.high * front;  // exact
  const DoubleDouble sum = TwoSum(root.high, product);
  const double beyond = rest + r.low;
  const double all = sum.low + (root.high * (back + beyond) +
                                (root.low + root.low * (z + beyond)));
  double rounded = 0;
  // Parts below 2^-12 were rounded, a few times each.
  if (!RoundsTo(sum.high, all, 0x1p-62, rounded)) return false;
  const int exponent = (whole - (whole & (kRoots - 1))) / kRoots;
  result = rounded *
           std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
  return true;
}

/// e^x - 1 for |x| < 2^-7.
bool QuickExpm1(double x, double& result) {
  const double rest =
      x * x *
      (0.5 +
       x * (1.0 / 6 +
            x * (1.0 / 24 +
                 x * (1.0 / 120 +
                      x * (1.0 / 720 + x * (1.0 / 5040 + x * (1.0 / 40320 +
                                                              x / 362880)))))));
  return RoundsTo(x, rest, x * x * 0x1p-50, result);
}

struct Rotation {
  DoubleDouble sin;
  DoubleDouble cos;
};

/// x = quadrant * pi / 2 + rest, |rest| <= pi / 4, by Taylor's series: what is
/// left out is below (pi / 4)^30 / 30! < 2^-118.
Rotation RotationOf(double x) {
  ISOLOSS_ASSERT(std::fabs(x) <= 0x1p20);
  const double quadrant = std::nearbyint(x * (2 / std::numbers::pi));
  const DoubleDouble rest = Twofold(x) - Twofold(quadrant) * kHalfPi;
  const DoubleDouble square = -(rest * rest);
  DoubleDouble sin = {1};
  DoubleDouble cos = {1};
  for (int n = 28; n >= 2; n -= 2) {
    const auto k = static_cast<double>(n);
    sin = Twofold(1) + sin * square / Twofold(k * (k + 1));
    cos = Twofold(1) + cos * square / Twofold(k * (k - 1));
  }
  sin = sin * rest;
  switch (static_cast<int64_t>(quadrant) & 3) {
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    case 3:
      return {-cos, sin};
    default:
      return {sin, cos};
  }
}

/// e^(x^2) erfc(x) / t for x >= 0, t = 2 / (2 + x) in (0, 1]: a series of
/// Chebyshev polynomials of 2 t - 1 that interpolates it at 64 nodes, computed
/// with 60 digits; the terms left out are below 1e-17 of the value.
constexpr std::array<double, 28> kErfc = {
    0x1.2770f75817bb2p-1,   0x1.6bf7a80297435p-2,   0x1.0aa138a4c2d24p-4,
    0x1.e12f190ee33d6p-9,   -0x1.23b9bf1ce7086p-10, -0x1.51227465cb5d2p-13,
    0x1.12fb3128fc639p-15,  0x1.6d3c6f7daba6ep-18,  -0x1.96ce1195d19a2p-20,
    -0x1.3309eea629150p-23, 0x1.61ac7b47792b4p-24,  -0x1.6451ece6c79ebp-30,
    -0x1.1d82a2ca0d7aep-28, 0x1.5ceee770180afp-31,  0x1.3aeb1095f58b1p-33,
    -0x1.0eefd39298cc3p-34, 0x1.22170e3c8ddc8p-39,  0x1.f6a49a09f55f3p-39,
    -0x1.e35f64f08b30cp-41, -0x1.14c5f24aace89p-44, 0x1.4e1c15a352ee5p-44,
    -0x1.d097c6d9cbec0p-47, -0x1.53eda4da2f0aap-49, 0x1.c55e1ced4dc5ep-50,
    -0x1.06ab729580ddap-52, -0x1.231ad828deaccp-54, 0x1.4b460f6532849p-55,
    -0x1.749c32a9589eap-58};

/// e^x, -900 <= x <= 0, within 2^-51 unless the result is subnormal: the rest
/// of x is off by 2^-54, the sum rounds three times.
double ExpOfNegative(DoubleDouble x) {
  const double n = std::nearbyint(x.high * std::numbers::log2e);
  const double rest = std::fma(-n, kLn2.high, x.high) + (x.low - n * kLn2.low);
  return std::ldexp(ExpTail(rest, 0), static_cast<int>(n));
}

double ErfcOfPositive(double x) {
  const double t = 2 / (2 + x);
  const double y = 2 * t - 1;
  double sum = 0;
  double before = 0;
  for (size_t i = kErfc.size() - 1; i >= 1; --i) {  // Clenshaw's recurrence
    const double next = 2 * y * sum - before + kErfc[i];
    before = sum;
    sum = next;
  }
  sum = y * sum - before + kErfc[0];
  return t * sum * ExpOfNegative(-TwoProduct(x, x));
}

}  // namespace

double Log(double x) {
  double result = 0;
  return IsSpecial(x, result) ? result : LogOf(x).high;
}

double Log2(double x) {
  double result = 0;
  if (IsSpecial(x, result)) return result;
  const Scaled scaled = Scale(x);
  return (Twofold(scaled.exponent) + LogOfMantissa(scaled.mantissa) * kLog2E)
      .high;
}

double Log10(double x) {
  double result = 0;
  return IsSpecial(x, result) ? result : (LogOf(x) * kLog10E).high;
}

double Exp(double x) {
  double result = 0;
  if (std::fabs(x) < 700 && QuickExp(x, result)) return result;
  return ExpLongWay(x);
}

double Expm1(double x) {
  double result = 0;
  if (x == 0) return 0;
  // So small that its square may be subnormal, x is the result itself.
  if (std::fabs(x) < 0x1p-7 && std::fabs(x) > 0x1p-400 &&
      QuickExpm1(x, result)) {
    return result;
  }
  return Expm1LongWay(x);
}

double ExpLongWay(double x) {
  return std::isnan(x) ? kNan : Rounded(Twofold(x));
}

double Expm1LongWay(double x) {
  if (std::isnan(x)) return kNan;
  if (x > 100) return ExpLongWay(x);  // so large that 1 is nothing to it
  if (x < -100) return -1;
  if (std::fabs(x) <= 0.25) return Expm1OfRest(Twofold(x)).high;
  const Power power = ExpOf(Twofold(x));
  const DoubleDouble exp = {std::ldexp(power.significand.high, power.exponent),
                            std::ldexp(power.significand.low, power.exponent)};
  return (exp - Twofold(1)).high;
}

double Pow(double base, double exponent) {
  ISOLOSS_ASSERT(base > 0 && base < kInfinity);
  if (std::isnan(exponent)) return kNan;
  // |log base| >= 2^-53 unless it is 0, so that no result is larger beyond, and
  // products of infinities are avoided.
  constexpr double kEnough = 1e19;
  return Rounded(Twofold(std::clamp(exponent, -kEnough, kEnough)) *
                 LogOf(base));
}

double Sin(double x) { return RotationOf(x).sin.high; }
double Cos(double x) { return RotationOf(x).cos.high; }

double Erfc(double x) {
  if (std::isnan(x)) return kNan;
  if (x > 30) return 0;
  if (x < -30) return 2;
  return x < 0 ? 2 - ErfcOfPositive(-x) : ErfcOfPositive(x);
}

}  // namespace isoloss::portable
