// Estimates the power of a model's width with which its best learning rate
// grows.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// The presets dsv3-nano and dsv3-small have this exponent. Nobody tuned it.
inline constexpr double kAssumedRateExponent = -0.5;

/// Two widths that lie nearer to each other tell more of chance.
inline constexpr double kLeastWidthFactor = 1.4;

/// Holds the best learning rate of a model.
struct RateAtWidth {
  size_t width = 0;                      ///< of the residual stream, above 0
  double rate = 0;                       ///< above 0
  std::vector<double> seed_optima = {};  ///< of each seed; empty: unknown
};

struct RateExponent {
  double value = kAssumedRateExponent;
  /// The least and the largest exponent that one seed of each size gives; not
  /// finite if nobody knows the optima of seeds.
  double least = -std::numeric_limits<double>::infinity();
  double largest = std::numeric_limits<double>::infinity();
  /// A phrase on why the exponent is assumed; empty: it is measured.
  std::string why_assumed = {};
};

/// Returns whether the widths lie far enough from each other.
bool WidthsTellExponent(size_t a, size_t b);

/// Returns log(rate of b / rate of a) / log(width of b / width of a).
/// Special  the assumed exponent with the reason, if the widths lie too near to
///          each other, if nobody knows the optima of seeds, or if the result
///          or that of a single seed is outside [-1.5, 0.25]: no rule of
///          scaling goes so far, but noise does.
RateExponent ExponentBetween(const RateAtWidth& a, const RateAtWidth& b);

}  // namespace isoloss::estimators
