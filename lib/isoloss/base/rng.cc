#include "isoloss/base/rng.h"

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"

namespace isoloss {

uint64_t CounterRng::Bits(uint64_t index) const {
  const auto block = Block(index);
  return uint64_t{block[1]} << 32 | block[0];
}

double CounterRng::Uniform(uint64_t index) const {
  return static_cast<double>(Bits(index) >> 11) * 0x1p-53;
}

uint64_t CounterRng::Below(uint64_t index, uint64_t bound) const {
  ISOLOSS_ASSERT(bound > 0);
  __extension__ using uint128 = unsigned __int128;
  return static_cast<uint64_t>(uint128{Bits(index)} * bound >> 64);
}

uint64_t StreamId(std::string_view name) { return DigestOf(name); }

}  // namespace isoloss
