// Defines how bits are dropped for which a format has no place.
#pragma once

#include <cstdint>

#include "isoloss/base/named.h"

namespace isoloss::formats {

/// Holds uniform random bits: `value` < 2^count, count <= 32.
struct RandomBits {
  uint32_t value = 0;
  int count = 0;
};

/// Modes look at magnitudes, so they are symmetric.
/// Source   IEEE 754-2019 (roundTiesToEven, roundTiesToAway, roundTowardZero);
///          microxcaling, round = nearest, and cvt.rna (kHalfAway); gfloat,
///          StochasticFastest, and TransformerEngine's software fallback
///          (kStochastic).
enum class RoundingMode {
  kNearestEven,  ///< to nearest, ties to the even code
  kHalfAway,     ///< to nearest, ties away from zero
  kTowardZero,   ///< bits are cut off
  kStochastic,   ///< away from zero with the probability of what is dropped:
                 ///< equal values need not get equal codes
};
inline constexpr Named<RoundingMode> kRoundingModeNames[] = {
    {"nearest_even", RoundingMode::kNearestEven},
    {"half_away", RoundingMode::kHalfAway},
    {"toward_zero", RoundingMode::kTowardZero},
    {"stochastic", RoundingMode::kStochastic}};

/// Returns bits / 2^shift as an integer. 1 <= shift <= 63; bits < 2^31. Only
/// kStochastic reads `random`.
constexpr uint64_t DropBits(RoundingMode mode, uint64_t bits, int shift,
                            RandomBits random) {
  const uint64_t half = uint64_t{1} << (shift - 1);
  switch (mode) {
    case RoundingMode::kNearestEven:
      return (bits + half - 1 + (bits >> shift & 1)) >> shift;
    case RoundingMode::kHalfAway:
      return (bits + half) >> shift;
    case RoundingMode::kTowardZero:
      break;
    case RoundingMode::kStochastic: {
      // The dropped bits are counted in units of 2^-count of a step; bits below
      // a unit are cut off.
      const uint64_t dropped = bits & ((uint64_t{1} << shift) - 1);
      const uint64_t units = shift > random.count
                                 ? dropped >> (shift - random.count)
                                 : dropped << (random.count - shift);
      const bool away = units + random.value >= uint64_t{1} << random.count;
      return (bits >> shift) + (away ? 1 : 0);
    }
  }
  return bits >> shift;
}

}  // namespace isoloss::formats
