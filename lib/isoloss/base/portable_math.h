// Elementary functions whose bits are the same on every machine, for numbers
// that reach a file: a C library chooses its code by the processor, and its
// versions differ in last bits.
//
// For figures, not for inner loops: a call takes up to some microseconds.
// kernels/elementary.h has what training steps call, by other formulas, so that
// either can be checked with the other.
#pragma once

namespace isoloss::portable {

// Computed in twice 53 bits by IEEE operations and fma alone, then rounded. So
// results are off by less than 0.5 + 2^-40 units in the last place, unless the
// lines below say otherwise; what a double can express exactly is exact.

/// Special  0 -> -inf; x < 0 or NaN -> NaN; +inf -> +inf.
double Log(double x);
double Log2(double x);
double Log10(double x);

/// e^x and e^x - 1. A subnormal result is rounded twice.
/// Special  NaN -> NaN; overflow -> +inf; underflow -> +0, or -1 for Expm1.
double Exp(double x);
double Expm1(double x);

/// The same to the bit, always in twice 53 bits: what a call of Exp or Expm1
/// falls back on where fewer bits leave the rounding open.
double ExpLongWay(double x);
double Expm1LongWay(double x);

/// base^exponent for a finite base > 0, off by less than 0.5 + 2^-30 units in
/// the last place where |exponent| <= 1100.
/// Special  an exponent of NaN -> NaN; overflow -> +inf; underflow -> +0.
double Pow(double base, double exponent);

/// Return sin x and cos x, off by 2^-80 besides the rounding; |x| must be <=
/// 2^20.
double Sin(double x);
double Cos(double x);

/// 1 - erf(x), within 2^-49 of the result, unless it is subnormal.
/// Special  NaN -> NaN; underflow -> +0.
double Erfc(double x);

}  // namespace isoloss::portable
