#include "isoloss/compare/rate_plateau.h"

#include <algorithm>
#include <cmath>

namespace isoloss::compare {

std::optional<RatePlateau> PlateauOf(std::span<const double> rates) {
  // This is far above a schedule's rounding, and far below a step of any decay.
  constexpr double kSame = 1e-9;
  double largest = 0;
  for (const double rate : rates) {
    if (!std::isfinite(rate)) return std::nullopt;
    largest = std::max(largest, rate);
  }
  if (!(largest > 0)) return std::nullopt;
  const auto is_largest = [&](double rate) {
    return rate >= largest * (1 - kSame);
  };
  const auto first = std::find_if(rates.begin(), rates.end(), is_largest);
  const auto last = std::find_if(rates.rbegin(), rates.rend(), is_largest);
  return RatePlateau{static_cast<size_t>(first - rates.begin()),
                     static_cast<size_t>(rates.rend() - last) - 1};
}

}  // namespace isoloss::compare
