// Represents numbers of twice 53 bits as the unevaluated sum of two doubles.
#pragma once

#include <cmath>

namespace isoloss {

/// high + low with |low| <= half a unit in the last place of high. Operations
/// are off by less than 2^-100 of the result, unless it or a product's error
/// is subnormal or overflows. std::fma rounds once by definition, so the bits
/// are the same on every machine.
/// Source   T. J. Dekker, "A floating-point technique for extending the
///          available precision", Numer. Math. 18, 1971; D. Knuth, TAOCP 2,
///          4.2.2 (the sum).
struct DoubleDouble {
  double high = 0;
  double low = 0;
};

/// Exactly a + b.
inline DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}

/// Exactly a * b.
inline DoubleDouble TwoProduct(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = TwoSum(a.high, b.high);
  const DoubleDouble low = TwoSum(a.low, b.low);
  const DoubleDouble sum = TwoSum(high.high, high.low + low.high);
  return TwoSum(sum.high, sum.low + low.low);
}

inline DoubleDouble operator-(DoubleDouble a) { return {-a.high, -a.low}; }
inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }

inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = TwoProduct(a.high, b.high);
  return TwoSum(product.high, product.low + (a.high * b.low + a.low * b.high));
}

inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double first = a.high / b.high;
  const DoubleDouble rest = a - b * DoubleDouble{first};
  const double second = rest.high / b.high;
  const DoubleDouble last = rest - b * DoubleDouble{second};
  return TwoSum(first, second) + DoubleDouble{last.high / b.high};
}

}  // namespace isoloss
