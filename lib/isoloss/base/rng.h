// Counter-based randomness: value = f(seed, stream, index), whatever thread or
// rank asks, in whatever order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace isoloss {

/// Draws Philox4x32-10 numbers: a seed is the key, (stream, index) the counter.
/// Source   Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as
///          1, 2, 3 (SC'11); constants and known answers of Random123.
class CounterRng {
 public:
  CounterRng(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Returns the 128 random bits of counter value `index`.
  std::array<uint32_t, 4> Block(uint64_t index) const;
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

/// Returns one Philox4x32-10 block, for known-answer tests.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

}  // namespace isoloss
