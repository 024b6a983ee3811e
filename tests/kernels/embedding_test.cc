#include "isoloss/kernels/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace isoloss::kernels::embedding_test {
namespace {

std::vector<float> Column(const Matrix<float>& m) {
  return {m.data(), m.data() + m.size()};
}

TEST(AddEmbeddingGradient, AddsChainsInLeavesAndLeavesInTheAlignedTree) {
  // Sequences of two tokens. Id 1 occurs in sequences 0, 1 and 3, so the tree
  // is (s0 + s1) + s3: with s0 = 2^24, s1 = s3 = 1 each 1 is lost. Adding s1
  // and s3 first would give 2^24 + 2. Id 2 has 2^24 in sequence 2 and 1 + 1 in
  // sequence 4: a chain over all three would lose both.
  const std::vector<int32_t> tokens = {1, 0, 0, 1, 2, 0, 1, 0, 2, 2};
  const std::vector<size_t> ends = {2, 4, 6, 8, 10};
  const float big = 0x1p24f;
  const std::vector<float> dx = {big, 3, 4, 1, big, 0, 1, 0, 1, 1};
  Matrix<float> dtable(4, 1);
  dtable(0, 0) = 100;
  Executor executor(2);

  AddEmbeddingGradient(tokens, ends, {dx.data(), 10, 1}, dtable.view(),
                       executor);

  EXPECT_THAT(Column(dtable), ::testing::ElementsAre(107, big, big + 2, 0));
}

TEST(AddEmbeddingGradient, FindsLeavesInEitherHalf) {
  // Id 1 occurs in sequences 2 and 3 only, id 0 in 5 and 6: in the right half
  // of its subtree at every level in turn.
  const std::vector<int32_t> tokens = {2, 2, 1, 1, 1, 2, 0, 0, 0};
  const std::vector<size_t> ends = {1, 2, 3, 5, 6, 7, 9};
  const float big = 0x1p24f;
  const std::vector<float> dx = {0, 0, big, 1, 1, 0, big, 1, 1};
  Matrix<float> dtable(3, 1);
  Executor executor(1);

  AddEmbeddingGradient(tokens, ends, {dx.data(), 9, 1}, dtable.view(),
                       executor);

  EXPECT_THAT(Column(dtable), ::testing::ElementsAre(big + 2, big + 2, 0));
}

TEST(AddEmbeddingGradient, HandlesAnOddNumberOfSequences) {
  const std::vector<int32_t> tokens = {0, 1, 0, 0, 1};
  const std::vector<size_t> ends = {1, 2, 3, 4, 5};
  const std::vector<float> dx = {1, 2, 4, 8, 16};
  Matrix<float> dtable(2, 1);
  Executor executor(1);

  AddEmbeddingGradient(tokens, ends, {dx.data(), 5, 1}, dtable.view(),
                       executor);

  EXPECT_THAT(Column(dtable), ::testing::ElementsAre(13, 18));
}

TEST(GatherRows, CopiesRows) {
  const std::vector<float> table = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> tokens = {2, 0, 2};
  Matrix<float> out(3, 2);
  Executor executor(1);

  GatherRows({table.data(), 3, 2}, tokens, out.view(), executor);

  EXPECT_THAT(Column(out), ::testing::ElementsAre(5, 6, 1, 2, 5, 6));
}

}  // namespace
}  // namespace isoloss::kernels::embedding_test
