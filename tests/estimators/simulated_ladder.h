// Ladders whose law is known, and how often each of them is called safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "isoloss/estimators/ladder_statement.h"

namespace isoloss::estimators {

/// Returns the relative gap, percent of the loss. A law may draw what all seeds
/// of a size share.
using RelativeLaw =
    std::function<double(const Size& size, std::mt19937_64& random)>;

enum class SeedNoise {
  kNormal,
  kStudentT3,  ///< of the same standard deviation
};

/// Describes ladders that are drawn again and again.
struct SimulatedLadder {
  std::vector<Size> sizes;
  size_t seeds = 8;
  /// Standard deviation of a seed's gap, and of its baseline's loss, nats.
  /// Gaps of dsv3-nano had 0.0026 to 0.004.
  double spread_nats = 0.003;
  SeedNoise noise = SeedNoise::kNormal;
  /// The largest size has this many times the spread of the smallest, and the
  /// logarithm grows evenly between them.
  double spread_growth = 1;
  LadderQuestion question = {};
};

/// Returns the sizes of the default ladder: 0.34, 1.3, 3 and 6.7 million
/// parameters, of which a token uses two thirds, with 1, 4 and 20 tokens each.
std::vector<Size> DefaultSizes();

/// Returns about what dsv3-nano learns of source code, nats.
double UsualLoss(const Size& size);

/// Draws the cells of one arm.
std::vector<GapCell> DrawCells(const SimulatedLadder& ladder,
                               const RelativeLaw& law, std::mt19937_64& random);

struct VerdictShares {
  double safe = 0;
  double unsafe = 0;
};
/// Draws `ladders` ladders and counts the verdicts on the first size of the
/// question. Exact   a function of its arguments.
VerdictShares ShareOfVerdicts(const SimulatedLadder& ladder,
                              const RelativeLaw& law, size_t ladders,
                              uint64_t seed);

/// Returns a gap of `percent` everywhere.
RelativeLaw EverywhereLaw(double percent);
/// Returns a line over log10 of the operations: `first` percent in the smallest
/// of the sizes, and `last` percent in the size `at`.
RelativeLaw LineLaw(const std::vector<Size>& sizes, double first,
                    const Size& at, double last);

}  // namespace isoloss::estimators
