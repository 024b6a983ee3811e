// To nearest, ties to the even code.
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {
namespace {

uint64_t Drop(uint64_t bits, int shift, RandomBits /*random*/) {
  const uint64_t half_minus_one = (uint64_t{1} << (shift - 1)) - 1;
  const uint64_t odd = bits >> shift & 1;
  return (bits + half_minus_one + odd) >> shift;
}

}  // namespace

extern constinit const RoundingMode kRoundingMode_nearest_even = {
    .name = "nearest_even",
    .stochastic = false,
    .drop = Drop,
    .source = "IEEE 754-2019, roundTiesToEven",
};

}  // namespace isoloss::formats
