#include "isoloss/corpus/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::corpus::batches_test {
namespace {

using testing::ElementsAre;

/// A corpus whose token at position i is i, so that a batch tells its places.
Corpus PositionCorpus(size_t size, double held_out_share) {
  std::vector<uint16_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  return Corpus(std::move(tokens), size, "", held_out_share,
                std::numeric_limits<double>::quiet_NaN());
}

/// First tokens of the batch's sequences.
std::vector<int32_t> Starts(const Batch& batch) {
  std::vector<int32_t> starts;
  size_t first = 0;
  for (const size_t end : batch.sequence_ends) {
    starts.push_back(batch.tokens[first]);
    first = end;
  }
  return starts;
}

std::string MessageOf(const Corpus& corpus, size_t sequence_length,
                      size_t held_out_sequences) {
  try {
    Batches(corpus, sequence_length, held_out_sequences);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(Batches, ShiftLabelsByOneAndRestartPositionsWithEverySequence) {
  const Corpus corpus = PositionCorpus(1000, 0.5);
  const Batches batches(corpus, 3, 2);
  Batch batch;

  batches.HeldOut(0, 2, batch);

  EXPECT_THAT(batch.tokens, ElementsAre(500, 501, 502, 996, 997, 998));
  EXPECT_THAT(batch.labels, ElementsAre(501, 502, 503, 997, 998, 999));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(batch.document_ends, ElementsAre(3, 6));
  EXPECT_THAT(batch.sequence_ends, ElementsAre(3, 6));
}

TEST(Batches, TrainingWindowsReachEveryPlaceOfTheTrainingShareAndNoOther) {
  // 12 training tokens hold windows of 8 + 1 at places 0 to 3.
  const Corpus corpus = PositionCorpus(24, 0.5);
  const Batches batches(corpus, 8, 1);
  Batch batch;

  batches.Training(1, 1, 200, batch);

  // Were each place drawn with probability 1/4, one would be missed by 200
  // draws with probability below 4 * 0.75^200 < 1e-24.
  const std::vector<int32_t> starts = Starts(batch);
  EXPECT_THAT(std::set<int32_t>(starts.begin(), starts.end()),
              ElementsAre(0, 1, 2, 3));
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    ASSERT_EQ(batch.labels[t], batch.tokens[t] + 1);
    ASSERT_LT(batch.labels[t], 12);
  }
}

TEST(Batches, TrainingIsAFunctionOfSeedAndStep) {
  const Corpus corpus = PositionCorpus(60000, 0.1);
  const Batches batches(corpus, 16, 4);
  const auto tokens = [&](uint64_t seed, int64_t step, size_t sequences) {
    Batch batch;
    batches.Training(seed, step, sequences, batch);
    return batch.tokens;
  };
  const std::vector<int32_t> first = tokens(1, 1, 4);

  EXPECT_EQ(first, tokens(1, 1, 4));
  EXPECT_NE(first, tokens(1, 2, 4));
  EXPECT_NE(first, tokens(2, 1, 4));

  const std::vector<int32_t> larger = tokens(1, 1, 8);
  EXPECT_EQ(first, std::vector<int32_t>(larger.begin(), larger.begin() + 64));
}

TEST(Batches, HeldOutPartsEqualTheWhole) {
  const Corpus corpus = PositionCorpus(1000, 0.5);
  const Batches batches(corpus, 10, 7);
  Batch whole;
  Batch head;
  Batch tail;

  batches.HeldOut(0, 7, whole);
  batches.HeldOut(0, 4, head);
  batches.HeldOut(4, 3, tail);

  head.tokens.insert(head.tokens.end(), tail.tokens.begin(), tail.tokens.end());
  EXPECT_EQ(head.tokens, whole.tokens);
  // Places 500 + floor(489 i / 6).
  EXPECT_THAT(Starts(whole), ElementsAre(500, 581, 663, 744, 826, 907, 989));
}

TEST(Batches, TakeAHeldOutShareThatJustHoldsAllSequences) {
  const Corpus corpus = PositionCorpus(62, 0.5);  // 31 = 3 * 10 + 1 held out
  const Batches batches(corpus, 10, 3);
  Batch batch;

  batches.HeldOut(0, 3, batch);

  EXPECT_THAT(Starts(batch), ElementsAre(31, 41, 51));
}

TEST(Batches, NameTheShareThatIsTooShort) {
  EXPECT_EQ(MessageOf(PositionCorpus(100, 0.9), 10, 2),
            "corpus: the training share has 10 of 100 tokens, but one sequence "
            "of 10 needs 11. Give more text, a smaller data.held_out_share or "
            "a shorter data.sequence_length.");
  EXPECT_EQ(MessageOf(PositionCorpus(100, 0.2), 10, 2),
            "corpus: the held-out share has 20 of 100 tokens, but 2 sequences "
            "of 10 need 21. Give more text, a larger data.held_out_share, "
            "fewer log.eval_sequences or a shorter data.sequence_length.");
  EXPECT_EQ(MessageOf(PositionCorpus(100, 0.21), 10, 2), "");
}

}  // namespace
}  // namespace isoloss::corpus::batches_test
