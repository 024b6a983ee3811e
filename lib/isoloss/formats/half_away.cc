// To nearest, ties away from zero.
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {
namespace {

uint64_t Drop(uint64_t bits, int shift, RandomBits /*random*/) {
  return (bits + (uint64_t{1} << (shift - 1))) >> shift;
}

}  // namespace

extern constinit const RoundingMode kRoundingMode_half_away = {
    .name = "half_away",
    .stochastic = false,
    .drop = Drop,
    .source =
        "IEEE 754-2019, roundTiesToAway; microxcaling, round = nearest; "
        "cvt.rna",
};

}  // namespace isoloss::formats
