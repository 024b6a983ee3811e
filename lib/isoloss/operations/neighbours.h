// Finds the two numbers of a grid between which a value was rounded at random.
#pragma once

#include <cmath>
#include <cstddef>

#include "isoloss/operations/roundings.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::operations {

/// A value that is known up to a bound lies between two numbers of a grid. They
/// are neighbours, or equal, unless the bound reaches beyond one.
struct Neighbours {
  Neighbours(oracle::Grid grid, const oracle::Estimate& estimate)
      : value(estimate),
        nearest(oracle::RoundTo(grid, estimate.exact)),
        low(Beyond(grid, estimate.exact - estimate.bound, false)),
        high(Beyond(grid, estimate.exact + estimate.bound, true)),
        are_next(oracle::Neighbour(grid, low, true) == high) {}

  /// Returns how a value became `found`, which is one of both.
  Rounding RoundingOf(float found) const {
    if (!are_next) return {};
    const double gap = static_cast<double>(high) - static_cast<double>(low);
    const double share = (value.exact - static_cast<double>(low)) / gap;
    const bool is_negative = high <= 0.0f;
    return {.remainder = is_negative ? 1.0 - share : share,
            .up = (found == high) != is_negative,
            .negative = is_negative,
            .slack = value.bound / gap};
  }

  oracle::Estimate value;
  float nearest;
  float low;
  float high;
  bool are_next;

 private:
  /// Returns the next number of the grid in that direction, or `exact` itself.
  static float Beyond(oracle::Grid grid, double exact, bool up) {
    const float rounded = oracle::RoundTo(grid, exact);
    const auto center = static_cast<double>(rounded);
    const bool is_beyond = up ? center >= exact : center <= exact;
    return is_beyond ? rounded : oracle::Neighbour(grid, rounded, up);
  }
};

/// Adds an element that must be one of both neighbours, or a number between
/// them; the nearest one if there is no finite bound.
inline void AddNeighbour(oracle::Comparison& comparison, size_t row, size_t col,
                         float found, const Neighbours& between,
                         oracle::Grid grid) {
  const bool is_one =
      std::isfinite(between.value.bound) && found >= between.low &&
      found <= between.high &&
      oracle::RoundTo(grid, static_cast<double>(found)) == found;
  comparison.AddExact(row, col, found, is_one ? found : between.nearest);
}

}  // namespace isoloss::operations
