// Defines how a tensor core adds the products of one instruction to a sum:
// terms are aligned to the largest one and cut off. It is constexpr, so that
// kernels of a device can share this text.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/elementary.h"

namespace isoloss::kernels {

/// Returns -126 for zero and subnormals.
constexpr int FloatExponentOf(float value) {
  const auto field =
      static_cast<int>(std::bit_cast<uint32_t>(value) >> 23 & 0xFF);
  return (field == 0 ? 1 : field) - 127;
}

/// Reads the factors of an instruction.
struct Factors {
  const Elements& a;
  const Elements& b;

  /// Returns a product of factors of at most 12 significant bits: it is exact.
  constexpr double Product(size_t k) const {
    return ValueOf(a, k) * ValueOf(b, k);
  }
  constexpr int Exponent(size_t k) const {
    return ExponentOf(a, k) + ExponentOf(b, k);
  }

 private:
  static constexpr float Read(const Elements& of, size_t k) {
    return of.exponents == nullptr ? formats::RoundToBf16(of.values[k])
                                   : of.values[k];
  }
  static constexpr double ValueOf(const Elements& of, size_t k) {
    return static_cast<double>(Read(of, k));
  }
  static constexpr int ExponentOf(const Elements& of, size_t k) {
    return of.exponents == nullptr ? FloatExponentOf(Read(of, k))
                                   : of.exponents[k];
  }
};

/// Returns term / 2^unit, cut off toward zero. The term is below 2^62 units;
/// 2^unit is a normal double.
constexpr int64_t UnitsIn(double term, int unit) {
  return static_cast<int64_t>(term * PowerOfTwo<double>(-unit));
}

/// Returns units / 2^bits, cut off downward.
constexpr int64_t ShiftedDown(int64_t units, int bits) {
  return units >> (bits < 63 ? bits : 63);
}

/// Returns total * 2^unit, cut off toward zero to `significand_bits` <= 24, of
/// which a subnormal result has fewer. The total is below 2^53.
constexpr float CutOff(int64_t total, int unit, int significand_bits) {
  constexpr int kFractionBits = 52;
  const double sum = static_cast<double>(total) * PowerOfTwo<double>(unit);
  auto bits = std::bit_cast<uint64_t>(sum);
  const int exponent = static_cast<int>(bits >> kFractionBits & 0x7FF) - 1023;
  const int below = exponent < -126 ? -126 - exponent : 0;
  const int cut = kFractionBits + 1 - significand_bits + below;
  if (cut > kFractionBits) return 0.0f;
  bits = bits >> cut << cut;
  if (exponent > 127) {
    return std::bit_cast<float>(total < 0 ? 0xFF800000u : 0x7F800000u);
  }
  return static_cast<float>(std::bit_cast<double>(bits));
}

/// Adds terms that are aligned to the largest one: with E the largest exponent
/// of all products and of `sum`, each is cut off below 2^(E - fraction_bits).
/// They are added exactly and cut off to `significand_bits`, then to FP32. All
/// cuts are toward zero.
///
/// The exponent of a product is the sum of its factors' exponents, even if the
/// product of their significands is 2 or more, or zero. That of `sum` is its
/// FP32 exponent, -126 of a subnormal and of zero.
constexpr float TruncatingSum(const Accumulator& accumulator, float sum,
                              const Factors& factors, size_t count) {
  int largest = FloatExponentOf(sum);
  for (size_t k = 0; k < count; k += accumulator.group) {
    const int exponent = factors.Exponent(k);
    if (exponent > largest) largest = exponent;
  }
  const int unit = largest - accumulator.fraction_bits;
  int64_t total = UnitsIn(static_cast<double>(sum), unit);
  for (size_t k = 0; k < count;) {
    const size_t left = count - k;
    const size_t end =
        k + (left < accumulator.group ? left : accumulator.group);
    double term = 0.0;
    for (; k < end; ++k) term += factors.Product(k);
    total += UnitsIn(term, unit);
  }
  return CutOff(total, unit, accumulator.significand_bits);
}

/// Is units * 2^(exponent - fraction_bits).
struct AlignedSum {
  int64_t units;
  int exponent;
};

/// Adds the products of steps first, first + stride, ..., cut off toward zero
/// below 2^(E - fraction_bits), with E their largest exponent.
constexpr AlignedSum SumOfProducts(const Accumulator& accumulator,
                                   const Factors& factors, size_t first,
                                   size_t stride, size_t count) {
  constexpr int kTwoZeros = 2 * -126;
  AlignedSum sum = {0, kTwoZeros};
  for (size_t k = first; k < count; k += stride) {
    const int exponent = factors.Exponent(k);
    if (exponent > sum.exponent || k == first) sum.exponent = exponent;
  }
  for (size_t k = first; k < count; k += stride) {
    sum.units +=
        UnitsIn(factors.Product(k), sum.exponent - accumulator.fraction_bits);
  }
  return sum;
}

/// Adds the products first, as SumOfProducts does; of FP8, those of even and of
/// odd steps apart. Sums of products are then aligned to the largest exponent E
/// and cut off downward below 2^(E - 24), or 2^(E - 31) when they meet `sum`,
/// which is cut off below 2^(E - 24). Only the result is rounded to nearest
/// even. Of FP8, a `sum` below 2^(E - 25) is not added.
/// Special  a product of 2^128 or more is an infinity.
constexpr float Cdna3Sum(const Accumulator& accumulator, float sum,
                         const Factors& factors, size_t count) {
  constexpr int kMoreBits = 7;
  double beyond = 0.0;
  for (size_t k = 0; k < count; ++k) {
    const double product = factors.Product(k);
    if (product >= 0x1p128 || product <= -0x1p128) {
      beyond += product * 0x1p1000;
    }
  }
  if (beyond != 0.0) return static_cast<float>(beyond);
  const bool is_fp8 = accumulator.adder == Adder::kCdna3Fp8;
  AlignedSum products =
      SumOfProducts(accumulator, factors, 0, is_fp8 ? 2 : 1, count);
  if (is_fp8) {
    const AlignedSum odd = SumOfProducts(accumulator, factors, 1, 2, count);
    const int top =
        odd.exponent > products.exponent ? odd.exponent : products.exponent;
    products = {ShiftedDown(products.units, top - products.exponent) +
                    ShiftedDown(odd.units, top - odd.exponent),
                top};
  }
  const int of_sum = FloatExponentOf(sum);
  const int top = of_sum > products.exponent ? of_sum : products.exponent;
  const int unit = top - accumulator.fraction_bits;
  const double scaled = static_cast<double>(sum) * PowerOfTwo<double>(-unit);
  auto addend = static_cast<int64_t>(scaled);
  if (static_cast<double>(addend) > scaled) --addend;
  if (is_fp8 && of_sum < top - 25) addend = 0;
  const int64_t total =
      ShiftedDown(products.units * (1 << kMoreBits), top - products.exponent) +
      addend * (1 << kMoreBits);
  return static_cast<float>(static_cast<double>(total) *
                            PowerOfTwo<double>(unit - kMoreBits));
}

/// Adds the `count` <= steps products a[k] b[k] to `sum`, as the accumulator
/// does.
/// Special  a NaN, an infinity times zero, or infinities of both signs give
///          NaN; else an infinity gives itself. A result beyond FP32 is
///          infinite. A sum of zero is +0.
/// Source   microsoft/MMA-Sim c785138.
constexpr float FusedSum(const Accumulator& accumulator, float sum,
                         const Elements& a, const Elements& b, size_t count) {
  const Factors factors = {a, b};
  // Doubles do not overflow, so that this is not finite if a term is not.
  auto plain = static_cast<double>(sum);
  for (size_t k = 0; k < count; ++k) plain += factors.Product(k);
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  return accumulator.adder == Adder::kTruncating
             ? TruncatingSum(accumulator, sum, factors, count)
             : Cdna3Sum(accumulator, sum, factors, count);
}

}  // namespace isoloss::kernels
