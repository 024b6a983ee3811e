// Counter-based randomness: value = f(seed, stream, index), whatever thread or
// rank asks, in whatever order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace isoloss {

/// Returns one Philox4x32-10 block.
/// Source   as CounterRng.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

/// Draws Philox4x32-10 numbers: a seed is the key, (stream, index) the counter.
/// Source   Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as
///          1, 2, 3 (SC'11); constants and known answers of Random123.
class CounterRng {
 public:
  constexpr CounterRng(uint64_t seed, uint64_t stream)
      : seed_(seed), stream_(stream) {}

  /// Returns the 128 random bits of counter value `index`.
  constexpr std::array<uint32_t, 4> Block(uint64_t index) const {
    return Philox4x32(
        {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
         static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  }
  /// 64 random bits.
  uint64_t Bits(uint64_t index) const;
  /// Returns a uniform number in [0, 1) that is a multiple of 2^-53.
  double Uniform(uint64_t index) const;
  /// Uniform integer in [0, bound), by multiply-shift of 64 bits; the bias is
  /// below bound * 2^-64. bound > 0.
  uint64_t Below(uint64_t index, uint64_t bound) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
};

/// Returns a stream number for a named quantity, e.g.
/// "init/layers.0.attention.wq".
uint64_t StreamId(std::string_view name);

}  // namespace isoloss
