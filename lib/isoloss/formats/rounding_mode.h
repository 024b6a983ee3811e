// How the bits are dropped for which a format has no place.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace isoloss::formats {

/// Uniform random bits: `value` < 2^count, count <= 32.
struct RandomBits {
  uint32_t value = 0;
  int count = 0;
};

/// Registered in rounding_modes.def; one file each, which defines
/// kRoundingMode_<name>. Modes look at magnitudes: they are symmetric.
struct RoundingMode {
  std::string_view name;
  /// Reads `random`: equal values need not get equal codes.
  bool stochastic;
  /// bits / 2^shift as an integer. 1 <= shift <= 63; bits < 2^31.
  uint64_t (*drop)(uint64_t bits, int shift, RandomBits random);
  std::string_view source;
};

extern const RoundingMode kRoundingMode_nearest_even;

/// All registered modes, in the order of rounding_modes.def.
std::span<const RoundingMode* const> AllRoundingModes();

/// Errors   ConfigError that lists the registered names.
const RoundingMode& RoundingModeByName(std::string_view name);

}  // namespace isoloss::formats
