// Finds the steps at which the learning rate does not change.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace isoloss::compare {

/// These steps have the largest learning rate, as places [first, last] in the
/// column. Warm-up comes before them, and decay after them.
struct RatePlateau {
  size_t first = 0;
  size_t last = 0;
};

/// Returns the places from the first to the last rate that is the largest
/// within 1e-9 of itself.
/// Special  empty for no rates, or if none is positive and finite.
std::optional<RatePlateau> PlateauOf(std::span<const double> rates);

}  // namespace isoloss::compare
