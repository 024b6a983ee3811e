// Computes with numbers and how far FP32's noise may carry them: what Estimate
// does at several times the cost, for elements that cannot flip.
#pragma once

#include <cmath>

#include "isoloss/oracle/estimate.h"

namespace isoloss::oracle {

/// A formula over Reach follows the same formula over Estimate. Both have the
/// same `exact`. If the result is certain, the Estimate has no jump, and
/// kFarthestTail times its noise is at most `reach`, but for a few roundings of
/// double. SurelyRoundsToBf16 has room for those.
struct Reach {
  double exact = 0.0;
  double reach = 0.0;
  /// No operation overflows and no intermediate rounding goes the other way.
  bool certain = true;

  Reach(double at, double within, bool surely)
      : exact(at), reach(within), certain(surely) {}
  // NOLINTNEXTLINE(google-explicit-constructor): formulas mix both types.
  Reach(const Estimate& a)
      : Reach(a.exact, internal::kFarthestTail * a.noise,
              a.jump_probability == 0.0 && a.bound < kMost) {}

  /// Below this neither a product of some numbers nor its bound overflows.
  static constexpr double kMost = 0x1p120;
};

inline Reach operator+(const Reach& a, const Reach& b) {
  return {a.exact + b.exact, a.reach + b.reach, a.certain && b.certain};
}

inline Reach operator*(const Reach& a, double factor) {
  return {a.exact * factor, a.reach * std::fabs(factor), a.certain};
}

inline Reach Product(const Reach& a, const Reach& b) {
  return {a.exact * b.exact,
          std::fabs(a.exact) * b.reach + std::fabs(b.exact) * a.reach,
          a.certain && b.certain};
}

inline Reach Difference(const Reach& a, const Reach& b) { return a + b * -1.0; }

/// Returns `a` after one rounding to FP32, whose noise is an ulp / sqrt(12). An
/// ulp is at most 2^-23 of the number or, below the normal numbers, kTiny.
inline Reach Rounded32(const Reach& a) {
  constexpr double kRelative = 0x1p-21;  // above 8 * 2^-23 / sqrt(12)
  constexpr double kAbsolute = internal::kFarthestTail * kTiny;
  const double size = std::fabs(a.exact);
  return {a.exact, a.reach + kRelative * size + kAbsolute,
          a.certain && size < Reach::kMost};
}

/// Nothing is certain on another grid than BF16's.
inline Reach RoundedOnTheWay(Grid grid, const Reach& a) {
  const float want = RoundTo(grid, a.exact);
  return {static_cast<double>(want), 0.0,
          a.certain && grid == Grid::kBf16 &&
              SurelyRoundsToBf16(a.exact, a.reach, want)};
}

/// Returns whether a cheap test shows that `value` is `expected` rounded to
/// BF16 and that the probability of a flip is 0.
inline bool IsFarFromFlips(float value, const Reach& expected) {
  return expected.certain &&
         SurelyRoundsToBf16(expected.exact, expected.reach, value);
}

}  // namespace isoloss::oracle
