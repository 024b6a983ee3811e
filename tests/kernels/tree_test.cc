#include "isoloss/kernels/tree.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace isoloss::kernels::tree_test {
namespace {

std::string Bracketed(int leaves) {
  const auto join = [](std::string left, std::string right) {
    return "(" + left + right + ")";
  };
  AlignedTree<std::string, decltype(join)> tree(join);
  for (int leaf = 0; leaf < leaves; ++leaf) tree.Push(std::to_string(leaf));
  return tree.Finish("empty");
}

TEST(AlignedTree, PairsLeavesByIndexForAnyCount) {
  EXPECT_EQ(Bracketed(0), "empty");
  EXPECT_EQ(Bracketed(1), "0");
  EXPECT_EQ(Bracketed(2), "(01)");
  EXPECT_EQ(Bracketed(3), "((01)2)");
  EXPECT_EQ(Bracketed(4), "((01)(23))");
  EXPECT_EQ(Bracketed(5), "(((01)(23))4)");
  EXPECT_EQ(Bracketed(6), "(((01)(23))(45))");
  EXPECT_EQ(Bracketed(7), "(((01)(23))((45)6))");
  EXPECT_EQ(Bracketed(8), "(((01)(23))((45)(67)))");
}

TEST(AlignedTree, StartsAnewAfterFinish) {
  AlignedTree<int, std::plus<int>> tree{std::plus<int>()};
  for (const int leaf : {1, 2, 4}) tree.Push(leaf);
  ASSERT_EQ(tree.Finish(0), 7);

  tree.Push(8);

  EXPECT_EQ(tree.Finish(0), 8);
  EXPECT_EQ(tree.Finish(0), 0);
}

TEST(AlignedTree, EqualsAlignedTreeSumBitForBit) {
  // Leaves of very different size, so that another order gives other bits.
  std::vector<float> leaves;
  for (int i = 0; i < 200; ++i) {
    leaves.push_back((i % 3 == 0 ? 1e6f : 1e-3f) /
                     static_cast<float>(1 + i * 7 % 31));
  }

  for (size_t count = 0; count <= leaves.size(); ++count) {
    AlignedTree<float, std::plus<float>> tree{std::plus<float>()};
    AlignedFold<float> fold;
    for (size_t i = 0; i < count; ++i) {
      tree.Push(leaves[i]);
      fold.Push(leaves[i]);
    }

    const float sum = AlignedTreeSum(leaves.data(), count);
    EXPECT_EQ(tree.Finish(0.0f), sum) << count << " leaves";
    EXPECT_EQ(fold.Finish(), sum) << count << " leaves";
  }
}

}  // namespace
}  // namespace isoloss::kernels::tree_test
