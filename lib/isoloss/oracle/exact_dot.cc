#include "isoloss/oracle/exact_dot.h"

#include <algorithm>
#include <cmath>

#include "isoloss/oracle/estimate_math.h"

namespace isoloss::oracle {
namespace {

/// Returns the distance between FP32 values of this magnitude.
double Fp32Spacing(double magnitude) {
  if (!(magnitude > 0.0)) return 0.0;
  constexpr int kMantissaBits = 23;
  constexpr int kLeastExponent = -149;
  return std::ldexp(
      1.0, std::max(std::ilogb(magnitude) - kMantissaBits, kLeastExponent));
}

/// Returns whether no order of adding `count` terms rounds. All partial sums
/// are multiples of the last bit of any term. They fit if `size`, the sum of
/// magnitudes, has 24 bits of that unit.
template <typename Terms>
bool FitInAnyOrder(const Terms& term, size_t count, double size) {
  double unit = HUGE_VAL;
  for (size_t k = 0; k < count; ++k) unit = std::min(unit, LowestBit(term(k)));
  return unit >= kTiny && size <= unit * 0x1p24;
}

/// Adds terms one after another and keeps what an estimate needs.
class Chain {
 public:
  void Add(double term) {
    const double magnitude = std::fabs(term);
    exact_ += term;
    size_ += magnitude;
    largest_ = std::max(largest_, magnitude);
    const double error = Add32(term, chain_);
    squares_ += error * error;
    lost_ += std::fabs(Add32(magnitude, magnitudes_));
  }

  /// `term(k)` returns the terms again, for 0 <= k < terms.
  template <typename Terms>
  Estimate Result(size_t terms, const Terms& term) const {
    const auto n = static_cast<double>(terms);
    // If the chain of magnitudes lost something, the order matters, and the
    // terms need no second walk. NaN and infinity have no noise.
    const bool rounds = lost_ > 0.0 || (size_ > 0.0 && std::isfinite(size_) &&
                                        !FitInAnyOrder(term, terms, size_));
    // Every rounding after the largest term is at least as coarse as that of
    // the largest term.
    const double spacing = rounds ? Fp32Spacing(largest_) : 0.0;
    return {
        .exact = exact_,
        .bound = Gamma(terms) * size_ + (size_ > 0.0 ? n * kTiny : 0.0),
        .noise = std::sqrt(std::max(squares_, n / 12.0 * spacing * spacing))};
  }

 private:
  /// Adds in FP32 and returns the rounding's error.
  static double Add32(double term, float& chain) {
    const double sum = static_cast<double>(chain) + term;
    const auto rounded = static_cast<float>(sum);
    chain = rounded;
    return static_cast<double>(rounded) - sum;
  }

  double exact_ = 0.0;
  double size_ = 0.0;     // sum of |a b|
  double squares_ = 0.0;  // squares of the chain's roundings
  double largest_ = 0.0;  // largest |a b|
  double lost_ = 0.0;     // roundings of the chain of magnitudes
  float chain_ = 0.0f;    // sum in FP32, ascending order
  float magnitudes_ = 0.0f;
};

}  // namespace

Grid ActivationGrid(const precision::Recipe& recipe) {
  return recipe.activation == decltype(recipe.activation)::kBf16 ? Grid::kBf16
                                                                 : Grid::kFp32;
}

Estimate Dot(const float* a, const float* b, size_t size, size_t a_stride,
             size_t b_stride) {
  const auto term = [&](size_t k) {
    return static_cast<double>(a[k * a_stride]) *
           static_cast<double>(b[k * b_stride]);
  };
  Chain chain;
  for (size_t k = 0; k < size; ++k) chain.Add(term(k));
  return chain.Result(size, term);
}

Estimate Sum(const float* values, size_t size, size_t stride) {
  const auto term = [&](size_t k) {
    return static_cast<double>(values[k * stride]);
  };
  Chain chain;
  for (size_t k = 0; k < size; ++k) chain.Add(term(k));
  return chain.Result(size, term);
}

}  // namespace isoloss::oracle
