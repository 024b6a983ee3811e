#include "isoloss/corpus/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace isoloss::corpus::synthetic_test {
namespace {

constexpr SyntheticSource kSource = {.vocab_size = 16,
                                     .order = 1,
                                     .noise_levels = 6,
                                     .tokens = 100'000,
                                     .seed = 3};

struct Measured {
  double entropy_nats = 0;
  double degrees_of_freedom = 0;
};

/// Entropy of a token given the `order` before it, from frequencies.
Measured ConditionalEntropy(const std::vector<uint32_t>& tokens, int order) {
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, double>> counts;
  double total = 0;
  for (size_t t = 2; t < tokens.size(); ++t, ++total) {
    ++counts[{tokens[t - 1], order == 2 ? tokens[t - 2] : 0}][tokens[t]];
  }
  Measured measured;
  for (const auto& [context, successors] : counts) {
    double context_total = 0;
    for (const auto& [token, count] : successors) context_total += count;
    for (const auto& [token, count] : successors) {
      measured.entropy_nats -= count / total * std::log(count / context_total);
    }
    measured.degrees_of_freedom += static_cast<double>(successors.size()) - 1;
  }
  return measured;
}

TEST(Synthetic, StatedEntropyRateIsTheNoiseEntropyByHand) {
  SyntheticSource source = kSource;
  // 1/2, 1/4, 1/4: 1.5 bits.
  source.noise_levels = 3;
  EXPECT_DOUBLE_EQ(EntropyRateNats(source), 1.5 * std::log(2.0));

  source.noise_levels = 1;
  EXPECT_EQ(EntropyRateNats(source), 0.0);
}

class SyntheticOrder : public testing::TestWithParam<int> {};

TEST_P(SyntheticOrder, MeasuredConditionalEntropyIsTheStatedOne) {
  SyntheticSource source = kSource;
  source.order = GetParam();
  const double stated = EntropyRateNats(source);
  const double n = static_cast<double>(source.tokens);

  const Measured measured =
      ConditionalEntropy(SyntheticTokens(source), source.order);

  // The mean of -ln P(e_t) has mean H and standard deviation below
  // sqrt(2) ln 2 / sqrt(n): -ln P is ln 2 times a truncated geometric variable
  // of variance below 2. Frequencies fit the sample better than P does, by
  // chi^2 / (2 n) on average with d degrees of freedom; five standard
  // deviations are allowed to both.
  const double noise = 5 * std::sqrt(2.0) * std::log(2.0) / std::sqrt(n);
  const double d = measured.degrees_of_freedom;
  const double fit = (d + 5 * std::sqrt(2 * d)) / (2 * n);
  EXPECT_LE(measured.entropy_nats, stated + noise);
  EXPECT_GE(measured.entropy_nats, stated - noise - fit);
}

INSTANTIATE_TEST_SUITE_P(Orders, SyntheticOrder, testing::Values(1, 2));

TEST(Synthetic, OrderTwoNeedsTheOlderToken) {
  SyntheticSource source = kSource;
  source.order = 2;

  const Measured blind = ConditionalEntropy(SyntheticTokens(source), 1);

  // Who ignores c sees a mixture of four shifted noises. If two of them start
  // elsewhere than the others, c's entropy of at least ln 2 mixes in; a quarter
  // of that is far above the sampling error of 0.02 nats.
  EXPECT_GT(blind.entropy_nats, EntropyRateNats(source) + std::log(2.0) / 4);
}

TEST(Synthetic, TokensAreAFunctionOfTheSourceSeed) {
  // Two tokens have only two permutations: the noise must differ as well.
  SyntheticSource source = {.vocab_size = 2, .noise_levels = 2, .tokens = 100};
  std::set<std::vector<uint32_t>> distinct;
  for (source.seed = 0; source.seed < 10; ++source.seed) {
    distinct.insert(SyntheticTokens(source));
    EXPECT_EQ(SyntheticTokens(source), SyntheticTokens(source));
  }

  EXPECT_EQ(distinct.size(), 10u);
}

}  // namespace
}  // namespace isoloss::corpus::synthetic_test
