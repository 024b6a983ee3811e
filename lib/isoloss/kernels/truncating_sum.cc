#include "isoloss/kernels/truncating_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace isoloss::kernels {
namespace {

int ExponentOf(float value) {
  const auto field =
      static_cast<int>(std::bit_cast<uint32_t>(value) >> 23 & 0xFF);
  return std::max(field, 1) - 127;
}

/// Returns the product of two elements, which is exact: each has at most 8
/// significant bits.
/// Returns the product of two elements, exact as they have at most 8
/// significant bits.
double Exact(const Elements& a, const Elements& b, size_t k) {
  return static_cast<double>(a.values[k]) * static_cast<double>(b.values[k]);
}

/// Cuts a value off toward zero, to `significand_bits` and to FP32.
float CutOff(double value, int significand_bits) {
  if (value == 0) return 0.0f;
  int exponent = 0;
  const double significand = std::frexp(value, &exponent);
  const double cut =
      std::ldexp(std::trunc(std::ldexp(significand, significand_bits)),
                 exponent - significand_bits);
  const auto nearest = static_cast<float>(cut);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(cut)
             ? std::nextafter(nearest, 0.0f)
             : nearest;
}

}  // namespace

float TruncatingSum(const Accumulator& accumulator, float sum,
                    const Elements& a, const Elements& b, size_t count) {
  int largest = ExponentOf(sum);
  float plain = sum;
  for (size_t k = 0; k < count; ++k) {
    largest = std::max(largest, a.exponents[k] + b.exponents[k]);
    plain = std::fma(a.values[k], b.values[k], plain);
  }
  // An intermediate overflow is no reason to stop: the terms decide.
  const auto is_finite = [&](size_t k) {
    return std::isfinite(a.values[k]) && std::isfinite(b.values[k]);
  };
  bool finite = std::isfinite(sum);
  for (size_t k = 0; k < count; ++k) finite = finite && is_finite(k);
  if (!finite) return plain;

  // Terms are at most 2^(F + 2), F <= 25, so that 33 of them fit into 64 bits.
  const int unit = largest - accumulator.fraction_bits;
  const auto units = [unit](double term) {
    return static_cast<int64_t>(std::trunc(std::ldexp(term, -unit)));
  };
  int64_t total = units(static_cast<double>(sum));
  for (size_t k = 0; k < count; ++k) total += units(Exact(a, b, k));
  return CutOff(std::ldexp(static_cast<double>(total), unit),
                accumulator.significand_bits);
}

}  // namespace isoloss::kernels
