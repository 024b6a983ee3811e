// Partial sums are added in this aligned binary tree.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace isoloss::kernels {

/// Folds values, given in order of leaf index 0, 1, 2, …, up the binary tree
/// over the leaf index. Node [i * 2^l, (i + 1) * 2^l) is left child + right
/// child; if the right child has no leaf, the left one passes through. The
/// shape depends on the number of leaves only, so that leaves may be computed
/// anywhere, in any grouping that respects the tree.
///
/// `Add(left, right)` returns or assigns left + right.
template <typename Value, typename Add>
class AlignedTree {
 public:
  explicit AlignedTree(Add add) : add_(std::move(add)) {}

  void Push(Value leaf) {
    ++count_;
    // Leaf number count_ - 1 closes as many levels as count_ has trailing
    // zeros.
    for (int level = std::countr_zero(count_); level > 0; --level) {
      leaf = add_(std::move(open_.back()), std::move(leaf));
      open_.pop_back();
    }
    open_.push_back(std::move(leaf));
  }

  /// Returns the root, or `empty` if nothing was pushed.
  Value Finish(Value empty) {
    if (open_.empty()) return empty;
    Value root = std::move(open_.back());
    open_.pop_back();
    while (!open_.empty()) {
      root = add_(std::move(open_.back()), std::move(root));
      open_.pop_back();
    }
    count_ = 0;
    return root;
  }

 private:
  Add add_;
  std::vector<Value> open_;  // roots of finished subtrees, largest first
  size_t count_ = 0;
};

/// AlignedFold works as AlignedTree, in fixed room: kernels of a device use it.
template <typename Number>
class AlignedFold {
 public:
  constexpr void Push(Number leaf) {
    for (size_t closed = ++count_; closed % 2 == 0; closed /= 2) {
      leaf = open_[--depth_] + leaf;
    }
    open_[depth_++] = leaf;
  }

  /// Returns the root, or 0 if nothing was pushed.
  constexpr Number Finish() const {
    if (depth_ == 0) return 0;
    Number root = open_[depth_ - 1];
    for (size_t i = depth_ - 1; i > 0; --i) root = open_[i - 1] + root;
    return root;
  }

 private:
  Number open_[33] = {};  // a subtree for each bit of fewer than 2^33 leaves
  size_t count_ = 0;
  size_t depth_ = 0;
};

/// Folds the numbers leaf(first), …, leaf(first + count - 1) by AlignedTree,
/// each computed once. Returns 0 if there are none.
template <typename Leaf>
auto AlignedTreeSum(size_t first, size_t count, const Leaf& leaf) {
  using Number = decltype(leaf(first));
  if (count == 0) return Number{0};
  if (count == 1) return leaf(first);
  const size_t half = std::bit_ceil(count) / 2;
  const Number left = AlignedTreeSum(first, half, leaf);
  return left + AlignedTreeSum(first + half, count - half, leaf);
}

/// Sums doubles or floats by AlignedTree.
template <typename T>
T AlignedTreeSum(const T* leaves, size_t count) {
  return AlignedTreeSum(0, count, [leaves](size_t i) { return leaves[i]; });
}

}  // namespace isoloss::kernels
