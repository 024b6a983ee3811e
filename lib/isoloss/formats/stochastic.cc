// Away from zero with the probability of what is dropped.
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {
namespace {

uint64_t Drop(uint64_t bits, int shift, RandomBits random) {
  // What is dropped, in units of 2^-count of a step, the rest cut off.
  const uint64_t dropped = bits & ((uint64_t{1} << shift) - 1);
  const uint64_t units = shift > random.count
                             ? dropped >> (shift - random.count)
                             : dropped << (random.count - shift);
  const bool away = units + random.value >= uint64_t{1} << random.count;
  return (bits >> shift) + (away ? 1 : 0);
}

}  // namespace

extern constinit const RoundingMode kRoundingMode_stochastic = {
    .name = "stochastic",
    .stochastic = true,
    .drop = Drop,
    .source =
        "gfloat, StochasticFastest; TransformerEngine's software fallback",
};

}  // namespace isoloss::formats
