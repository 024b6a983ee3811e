// Bits are cut off.
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats {
namespace {

uint64_t Drop(uint64_t bits, int shift, RandomBits /*random*/) {
  return bits >> shift;
}

}  // namespace

extern constinit const RoundingMode kRoundingMode_toward_zero = {
    .name = "toward_zero",
    .stochastic = false,
    .drop = Drop,
    .source = "IEEE 754-2019, roundTowardZero",
};

}  // namespace isoloss::formats
