// Where the learning rate stands still.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace isoloss::compare {

/// The steps at the largest learning rate, as places [first, last] in the
/// column: warm-up lies before, decay behind.
struct RatePlateau {
  size_t first = 0;
  size_t last = 0;
};

/// From the first to the last rate that is the largest within 1e-9 of itself.
/// Special  empty for no rates, or if none is positive and finite.
std::optional<RatePlateau> PlateauOf(std::span<const double> rates);

}  // namespace isoloss::compare
