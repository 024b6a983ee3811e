#include "isoloss/base/rng.h"

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"

namespace isoloss {
namespace {

constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<uint32_t, 4> CounterRng::Block(uint64_t index) const {
  return Philox4x32({Low(index), High(index), Low(stream_), High(stream_)},
                    {Low(seed_), High(seed_)});
}

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
