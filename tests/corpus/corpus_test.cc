#include "isoloss/corpus/corpus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

namespace isoloss::corpus {
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
}  // namespace isoloss::corpus
