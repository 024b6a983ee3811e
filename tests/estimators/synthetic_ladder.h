// Ladders whose law is known.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "isoloss/estimators/gap_cell.h"

namespace isoloss::estimators {

/// Sizes of the ladder's default that two cores can train.
inline std::vector<Size> SmallSizes() {
  return {{0.34e6, 0.34e6}, {0.34e6, 1.36e6}, {0.34e6, 6.8e6},
          {1.3e6, 1.3e6},   {1.3e6, 5.2e6},   {3e6, 3e6}};
}

using Law = std::function<double(const Size&)>;

/// Cells with `seeds` normal gaps of standard deviation `sd` around `gap`, and
/// losses of standard deviation `sd` around `loss`.
inline std::vector<GapCell> SyntheticLadder(const Law& gap, const Law& loss,
                                            size_t seeds, double sd,
                                            uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, sd);
  std::vector<GapCell> cells;
  for (const Size& size : SmallSizes()) {
    GapCell cell{.name = "cell" + std::to_string(cells.size()),
                 .size = size,
                 .gaps = {},
                 .baseline = {}};
    for (size_t i = 0; i < seeds; ++i) {
      cell.gaps.push_back(gap(size) + normal(random));
      cell.baseline.push_back(loss(size) + normal(random));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

/// About what dsv3-nano learns of source code.
inline double UsualLoss(const Size& size) {
  return 1.2 + 20 * std::pow(size.parameters, -0.34) +
         80 * std::pow(size.tokens, -0.3);
}

}  // namespace isoloss::estimators
