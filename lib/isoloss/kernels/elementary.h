// Computes elementary functions without libm: polynomials and IEEE operations
// are written out with explicit fused multiply-adds, and give the same bits on
// every target.
//
// The scalar functions here define the results; the vector versions used inside
// the kernels equal them bit for bit. They are constexpr, so that kernels of a
// device can share this text.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "isoloss/kernels/elementary_constants.h"

namespace isoloss::kernels {

/// Evaluates the polynomial with these coefficients, highest power first.
template <typename T, size_t kTerms>
constexpr T Horner(T x, std::array<T, kTerms> coefficients) {
  T sum = coefficients[0];
  for (size_t i = 1; i < kTerms; ++i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

/// Returns 2^exponent for an exponent of a normal number.
template <typename T>
constexpr T PowerOfTwo(typename ElementaryConstants<T>::Integer exponent) {
  using C = ElementaryConstants<T>;
  return std::bit_cast<T>((exponent + C::kExponentBias) << C::kMantissaBits);
}

/// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln(2)/2. The power of two
/// is applied in two halves: the first product is exact, the second rounds once
/// and so underflows gradually and overflows to infinity by itself.
template <typename T>
constexpr T ExpOf(T x) {
  using C = ElementaryConstants<T>;
  if (std::isnan(x)) return std::numeric_limits<T>::quiet_NaN();
  x = x < C::kExpMin ? C::kExpMin : x > C::kExpMax ? C::kExpMax : x;
  const T n = std::fma(x, C::kLog2E, C::kRoundToInteger) - C::kRoundToInteger;
  const T r = std::fma(-n, C::kLn2Low, std::fma(-n, C::kLn2High, x));
  constexpr auto terms = C::kExp;
  const T p = std::fma(r * r, Horner(r, terms), r) + 1;
  const auto exponent = static_cast<typename C::Integer>(n);
  const auto half = exponent >> 1;
  return p * PowerOfTwo<T>(half) * PowerOfTwo<T>(exponent - half);
}

/// ln x = e * ln 2 + ln(1 + f), 1 + f in [sqrt(1/2), sqrt(2)). With
/// s = f / (2 + f), ln(1 + f) = 2 atanh(s) = f - s * (f - R), where R is the
/// series without its first term; f is exact, so rounding errors enter only
/// through the small second term.
template <typename T>
constexpr T LogOf(T x) {
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
  constexpr auto terms = C::kLog;
  const T series = z * Horner(z, terms);
  const T correction = std::fma(s, f - series, -(e * C::kLn2Low));
  return std::fma(e, C::kLn2High, f - correction);
}

/// Returns e^x, within 2 ulp. Special: NaN -> NaN; overflow -> +inf; underflow
/// is gradual, ending in +0.
constexpr float Exp(float x) { return ExpOf(x); }
/// Returns the natural logarithm, within 2 ulp. Special: 0 -> -inf; x < 0 or
/// NaN -> NaN; +inf -> +inf; subnormals are exact inputs. NaN results are the
/// positive quiet NaN without payload, here and in Exp.
constexpr float Log(float x) { return LogOf(x); }
/// Returns 1 / (1 + e^-x), within 3 ulp, without overflow at either end.
constexpr float Sigmoid(float x) {
  const float e = Exp(-std::fabs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
/// Returns 1 / sqrt(x), computed by two IEEE operations.
constexpr float Rsqrt(float x) { return 1.0f / std::sqrt(x); }

/// The double-precision versions serve tables, schedules and initialisation;
/// accuracy in ulp and special values are as above.
constexpr double Exp(double x) { return ExpOf(x); }
constexpr double Log(double x) { return LogOf(x); }
/// Computes sin x and cos x, both within 2^-52 absolute, for |x| <= 2^20.
void SinCos(double x, double* sin, double* cos);

}  // namespace isoloss::kernels
