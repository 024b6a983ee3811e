#include "isoloss/corpus/corpus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::corpus::corpus_test {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

TEST(Corpus, HoldsOutTheTailWithoutOverlap) {
  const Corpus corpus(std::vector<uint8_t>(1001, 7), 256, "", 0.25, kUnknown);

  EXPECT_EQ(corpus.training().first, 0u);
  EXPECT_EQ(corpus.training().count, 751u);
  EXPECT_EQ(corpus.held_out().first, 751u);
  EXPECT_EQ(corpus.held_out().count, 250u);  // floor(250.25)
}

TEST(Corpus, UnigramEntropyIsOfTheTrainingShareOnly) {
  // Training: 0 0 1 2 with p = 1/2, 1/4, 1/4: 1.5 bits. Held out: 3 3 3 1.
  const Corpus corpus(std::vector<uint16_t>{0, 0, 1, 2, 3, 3, 3, 1}, 4, "", 0.5,
                      kUnknown);

  // Powers of two are exact; each of three products and sums rounds once.
  EXPECT_NEAR(corpus.unigram_entropy_nats(), 1.5 * std::numbers::ln2, 1e-15);
  EXPECT_TRUE(std::isnan(corpus.entropy_floor_nats()));
}

TEST(Corpus, BigramEntropyIsThatOfATokenGivenTheOneBefore) {
  // Pairs of the training share 0 1 0 2 0 1 0 2 0: after 0 come 1 and 2 twice
  // each, after 1 and 2 always 0. 4 of 8 tokens take a bit.
  const Corpus corpus(std::vector<uint8_t>{0, 1, 0, 2, 0, 1, 0, 2, 0, 3, 3, 3,
                                           3, 3, 3, 3, 3, 3},
                      4, "", 0.5, kUnknown);

  // Each of a dozen products and sums rounds once.
  EXPECT_NEAR(corpus.bigram_entropy_nats(), 0.5 * std::numbers::ln2, 1e-14);
}

// A source of order 1 is all bigrams; with so many tokens counting pairs comes
// within 256 * 8 / (2 * 1e6) = 0.001 nats of its rate, too low.
TEST(Corpus, BigramEntropyOfASourceOfOrderOneIsItsRate) {
  const Corpus corpus = LoadCorpus(SyntheticSource{256, 1, 8, 1'000'000, 3}, 0);

  EXPECT_NEAR(corpus.bigram_entropy_nats(), corpus.entropy_floor_nats(), 0.002);
}

TEST(Corpus, BigramEntropyIsUnknownWherePairsAreTooRareOrNone) {
  EXPECT_TRUE(std::isnan(Corpus(std::vector<uint16_t>(9, 1),
                                kMaxBigramVocabulary + 1, "", 0, kUnknown)
                             .bigram_entropy_nats()));
  EXPECT_TRUE(std::isnan(Corpus(std::vector<uint8_t>{1}, 4, "", 0, kUnknown)
                             .bigram_entropy_nats()));
}

// Deflate finds what repeats, and nothing in noise: that it stores, with 5
// bytes a block. Tokens of two bytes are compressed as such.
TEST(Corpus, DeflatedBitsAreThoseOfATokenOfTheTrainingShare) {
  const auto bits = [](TokenVector tokens, double held_out_share) {
    return Corpus(std::move(tokens), 256, "", held_out_share, kUnknown)
        .deflated_bits();
  };
  std::vector<uint8_t> noise(1 << 16);
  for (size_t i = 0; i < noise.size(); ++i) {
    noise[i] = static_cast<uint8_t>(StreamId(std::to_string(i)));
  }
  std::vector<uint8_t> half = noise;
  half.resize(2 * noise.size(), 0);

  EXPECT_LT(bits(std::vector<uint8_t>(1 << 16, 7), 0), 0.02);
  EXPECT_NEAR(bits(noise, 0), 8, 0.01);
  EXPECT_NEAR(bits(half, 0.5), 8, 0.01);
  const double wide =
      bits(std::vector<uint16_t>(noise.begin(), noise.end()), 0);
  EXPECT_GT(wide, 8);
  EXPECT_LT(wide, 16);
  EXPECT_TRUE(std::isnan(bits(noise, 1)));
}

TEST(Corpus, DigestDependsOnTokensAndVocabularyButNotOnTheirWidth) {
  const auto digest = [](TokenVector tokens, size_t vocab_size) {
    return Corpus(std::move(tokens), vocab_size, "", 0.1, kUnknown).digest();
  };
  const uint64_t bytes = digest(std::vector<uint8_t>{1, 2, 3}, 256);

  EXPECT_EQ(bytes, digest(std::vector<uint16_t>{1, 2, 3}, 256));
  EXPECT_EQ(bytes, digest(std::vector<uint32_t>{1, 2, 3}, 256));
  EXPECT_NE(bytes, digest(std::vector<uint8_t>{1, 2, 4}, 256));
  EXPECT_NE(bytes, digest(std::vector<uint8_t>{1, 2, 3}, 255));
}

}  // namespace
}  // namespace isoloss::corpus::corpus_test
