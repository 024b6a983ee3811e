// Computes with estimates: exact operations carry errors along, and sums are
// made as FP32 makes them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/oracle/estimate.h"

namespace isoloss::oracle {

/// This is the variance of one rounding, relative to the square of its result.
/// It is the mean of ulp(x)^2 / 12 over x^2 if mantissas are spread evenly in
/// their logarithm.
inline constexpr double kRoundingVariance = 0.0451 * 0x1p-46;

inline Estimate Exactly(double value) { return {.exact = value}; }

/// Returns a * b, exact.
inline Estimate Product(const Estimate& a, const Estimate& b) {
  const double size_a = std::fabs(a.exact);
  const double size_b = std::fabs(b.exact);
  const bool of_a = a.jump_probability >= b.jump_probability;
  return {.exact = a.exact * b.exact,
          .bound = size_a * b.bound + size_b * a.bound + a.bound * b.bound,
          .noise = RootOfSquares(size_a * b.noise, size_b * a.noise),
          .jump_probability = std::max(a.jump_probability, b.jump_probability),
          .jump = of_a ? a.jump * b.exact : b.jump * a.exact};
}

/// Returns a - b, exact.
inline Estimate Difference(const Estimate& a, const Estimate& b) {
  return a + b * -1.0;
}

/// Returns a / b, exact.
/// Special  an unbounded error if b may be zero; the result of IEEE division
///          if b is zero exactly.
inline Estimate Quotient(const Estimate& a, const Estimate& b) {
  const double size_b = std::fabs(b.exact);
  Estimate result = a * (1.0 / b.exact);
  result.exact = a.exact / b.exact;
  if (b.bound == 0.0) return result;
  const double room = size_b - b.bound;
  result.bound = room > 0.0
                     ? (a.bound + std::fabs(result.exact) * b.bound) / room
                     : HUGE_VAL;
  result.noise =
      RootOfSquares(a.noise, std::fabs(result.exact) * b.noise) / size_b;
  return result;
}

/// Returns sqrt(a), exact, for a >= 0.
inline Estimate SquareRoot(const Estimate& a) {
  const double root = std::sqrt(a.exact);
  // |sqrt(x + e) - sqrt(x)| exceeds neither sqrt(e) nor e / sqrt(x).
  const double near_zero = std::sqrt(a.bound);
  const double bound =
      root > 0.0 ? std::min(near_zero, a.bound / root) : near_zero;
  return {.exact = root,
          .bound = bound,
          .noise = root > 0.0 ? std::min(bound, a.noise / (2.0 * root)) : 0.0};
}

/// Returns whether `a` is certainly one FP32 number, which no operation rounds.
inline bool IsExact32(const Estimate& a) {
  return a.bound == 0.0 && a.noise == 0.0 && FitsFp32(a.exact);
}

/// Returns the result of one FP32 operation.
inline Estimate Operation32(const Estimate& a) {
  return IsExact32(a) ? a : Rounded32(a);
}

/// Returns the result of the last FP32 operation before a tensor is stored. On
/// a grid of FP32 its rounding is the tensor's.
inline Estimate LastOperation32(Grid grid, const Estimate& a) {
  return grid == Grid::kFp32 ? a : Operation32(a);
}

/// Returns the value of the lowest bit that is set. It is infinite for 0, and 0
/// for numbers that are not finite or are near double's subnormals.
inline double LowestBit(double value) {
  if (value == 0.0) return HUGE_VAL;
  constexpr int kMantissaBits = 52;
  constexpr uint64_t kMantissa = (uint64_t{1} << kMantissaBits) - 1;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto exponent = static_cast<int>(bits >> kMantissaBits & 0x7FF);
  const int zeros = std::min(kMantissaBits, std::countr_zero(bits & kMantissa));
  const int lowest = exponent - kMantissaBits + zeros;
  if (exponent == 0x7FF || lowest <= 0) return 0.0;
  return std::bit_cast<double>(static_cast<uint64_t>(lowest) << kMantissaBits);
}

/// Adds estimates up in FP32. The bound holds for any order, the noise for the
/// ascending one. If as many roundings at the largest term give more noise,
/// they count instead, since an order may begin with this term. If no order
/// rounds, there is neither a bound nor noise.
class Sum32 {
 public:
  void Add(const Estimate& term) {
    sum_ = sum_ + term;
    size_ += std::fabs(term.exact) + term.bound;
    largest_ = std::max(largest_, std::fabs(term.exact));
    unit_ = term.bound == 0.0 ? std::min(unit_, LowestBit(term.exact)) : 0.0;
    ++terms_;
    // The first term is added to zero.
    if (terms_ > 1 && !IsExact32(sum_)) {
      variance_ += kRoundingVariance * sum_.exact * sum_.exact;
    }
  }
  size_t terms() const { return terms_; }
  /// Returns the sum. Each term already got `roundings` roundings of its own
  /// size.
  Estimate Value(size_t roundings = 0) const {
    // All partial sums are multiples of the unit and have at most 24 bits.
    if (size_ <= 0x1p24 * unit_ || (terms_ < 2 && roundings == 0)) return sum_;
    Estimate result = sum_;
    result.bound +=
        Gamma(terms_ + roundings) * size_ + static_cast<double>(terms_) * kTiny;
    const double ulp = Ulp(largest_);
    const double others = static_cast<double>(terms_) / 12.0 * ulp * ulp;
    result.noise =
        RootOfSquares(sum_.noise, std::sqrt(std::max(variance_, others)));
    return result;
  }

 private:
  Estimate sum_;
  double size_ = 0.0;
  double largest_ = 0.0;    // |term|
  double unit_ = HUGE_VAL;  // divides all terms; 0: none
  double variance_ = 0.0;
  size_t terms_ = 0;
};

}  // namespace isoloss::oracle
