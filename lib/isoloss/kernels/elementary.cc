#include "isoloss/kernels/elementary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/kernels/elementary_constants.h"

namespace isoloss::kernels {
namespace {

/// Evaluates the polynomial with these coefficients, highest power first.
template <typename T, size_t kTerms>
T Horner(T x, const std::array<T, kTerms>& coefficients) {
  T sum = coefficients[0];
  for (size_t i = 1; i < kTerms; ++i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

/// Returns 2^exponent for an exponent of a normal number.
template <typename T>
T PowerOfTwo(typename ElementaryConstants<T>::Integer exponent) {
  using C = ElementaryConstants<T>;
  return std::bit_cast<T>((exponent + C::kExponentBias) << C::kMantissaBits);
}

/// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln(2)/2. The power of two
/// is applied in two halves: the first product is exact, the second rounds once
/// and so underflows gradually and overflows to infinity by itself.
template <typename T>
T ExpOf(T x) {
  using C = ElementaryConstants<T>;
  if (std::isnan(x)) return std::numeric_limits<T>::quiet_NaN();
  x = std::clamp(x, C::kExpMin, C::kExpMax);
  const T n = std::fma(x, C::kLog2E, C::kRoundToInteger) - C::kRoundToInteger;
  const T r = std::fma(-n, C::kLn2Low, std::fma(-n, C::kLn2High, x));
  const T p = std::fma(r * r, Horner(r, C::kExp), r) + 1;
  const auto exponent = static_cast<typename C::Integer>(n);
  const auto half = exponent >> 1;
  return p * PowerOfTwo<T>(half) * PowerOfTwo<T>(exponent - half);
}

/// ln x = e * ln 2 + ln(1 + f), 1 + f in [sqrt(1/2), sqrt(2)). With
/// s = f / (2 + f), ln(1 + f) = 2 atanh(s) = f - s * (f - R), where R is the
/// series without its first term; f is exact, so rounding errors enter only
/// through the small second term.
template <typename T>
T LogOf(T x) {
  using C = ElementaryConstants<T>;
  using Integer = typename C::Integer;
  if (x == 0) return -std::numeric_limits<T>::infinity();
  if (!(x > 0)) return std::numeric_limits<T>::quiet_NaN();
  if (x == std::numeric_limits<T>::infinity()) return x;
  const bool subnormal = x < C::kSmallestNormal;
  const auto bits =
      std::bit_cast<Integer>(subnormal ? x * C::kSubnormalScale : x);
  const Integer exponent = (bits - C::kSqrtHalfBits) >> C::kMantissaBits;
  const T f =
      std::bit_cast<T>(bits - exponent * (Integer{1} << C::kMantissaBits)) - 1;
  const T e = static_cast<T>(exponent - (subnormal ? C::kSubnormalShift : 0));
  const T s = f / (2 + f);
  const T z = s * s;
  const T series = z * Horner(z, C::kLog);
  const T correction = std::fma(s, f - series, -(e * C::kLn2Low));
  return std::fma(e, C::kLn2High, f - correction);
}

}  // namespace

float Exp(float x) { return ExpOf(x); }
double Exp(double x) { return ExpOf(x); }
float Log(float x) { return LogOf(x); }
double Log(double x) { return LogOf(x); }

float Sigmoid(float x) {
  const float e = Exp(-std::fabs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

float Rsqrt(float x) { return 1.0f / std::sqrt(x); }

void SinCos(double x, double* sin, double* cos) {
  ISOLOSS_ASSERT(std::fabs(x) <= 0x1p20);
  // These are the two parts of pi/2. The first has 33 bits, so that its product
  // with the quadrant number (20 bits) is exact; the parts omit less than 1e-20
  // in all.
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPiHigh = 0x1.921fb544p+0;
  constexpr double kHalfPiLow = 0x1.0b4611a626331p-34;
  constexpr double kRound = ElementaryConstants<double>::kRoundToInteger;
  const double n = std::fma(x, kTwoOverPi, kRound) - kRound;
  const double r = std::fma(-n, kHalfPiLow, std::fma(-n, kHalfPiHigh, x));
  // These are Taylor series in z = r^2, |r| <= pi/4. The remainders are below
  // r^17 / 17! and r^18 / 18!, both < 5e-17.
  constexpr std::array<double, 7> kSin = {
      -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
      -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  constexpr std::array<double, 8> kCos = {
      1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
      1.0 / 40320,          -1.0 / 720,         1.0 / 24,        -1.0 / 2};
  const double z = r * r;
  const double s = std::fma(r * z, Horner(z, kSin), r);
  const double c = std::fma(z, Horner(z, kCos), 1.0);
  const auto quadrant = static_cast<int64_t>(n) & 3;
  const double abs_sin = (quadrant & 1) != 0 ? c : s;
  const double abs_cos = (quadrant & 1) != 0 ? s : c;
  *sin = (quadrant & 2) != 0 ? -abs_sin : abs_sin;
  *cos = quadrant == 1 || quadrant == 2 ? -abs_cos : abs_cos;
}

}  // namespace isoloss::kernels
