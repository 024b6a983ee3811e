#include "isoloss/corpus/synthetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"

namespace isoloss::corpus {
namespace {

using Permutation = std::vector<uint32_t>;

/// Shuffles by Fisher-Yates with the draws of one stream per context.
Permutation RandomPermutation(uint64_t seed, size_t context, size_t size) {
  const CounterRng rng(
      seed, StreamId("synthetic/permutation/" + std::to_string(context)));
  Permutation permutation(size);
  std::iota(permutation.begin(), permutation.end(), 0U);
  for (size_t i = size; i > 1; --i) {
    std::swap(permutation[i - 1], permutation[rng.Below(i - 1, i)]);
  }
  return permutation;
}

}  // namespace

std::vector<uint32_t> SyntheticTokens(const SyntheticSource& source) {
  ISOLOSS_ASSERT(source.order == 1 || source.order == 2);
  ISOLOSS_ASSERT(source.noise_levels >= 1 && source.noise_levels <= 64);
  ISOLOSS_ASSERT(source.noise_levels <= source.vocab_size);
  const size_t contexts = source.order == 2 ? kSyntheticContexts : 1;
  std::vector<Permutation> permutations;
  for (size_t c = 0; c < contexts; ++c) {
    permutations.push_back(
        RandomPermutation(source.seed, c, source.vocab_size));
  }

  const CounterRng noise(source.seed, StreamId("synthetic/noise"));
  std::vector<uint32_t> tokens(source.tokens);
  uint32_t previous = 0;
  uint32_t older = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    // The number of leading zeros of fair bits is j with probability 2^-(j+1).
    const uint64_t e = std::min<uint64_t>(std::countl_zero(noise.Bits(t)),
                                          source.noise_levels - 1);
    const uint64_t mean = permutations[older % contexts][previous];
    tokens[t] = static_cast<uint32_t>((mean + e) % source.vocab_size);
    older = std::exchange(previous, tokens[t]);
  }
  return tokens;
}

double EntropyRateNats(const SyntheticSource& source) {
  return std::numbers::ln2 *
         (2.0 - std::ldexp(1.0, 2 - static_cast<int>(source.noise_levels)));
}

}  // namespace isoloss::corpus
