// Pairs the rows of two layouts that belong to the same token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/layouts/batch.h"
#include "isoloss/layouts/row_order.h"

namespace isoloss::layouts {

/// A pair is a tensor of both sides; rows have the order of A.
struct Pair {
  Whole a;
  Whole b;

  bool HasOneExtent() const {
    return a.values.rows() == b.values.rows() &&
           a.values.cols() == b.values.cols();
  }
};

class TokenRows {
 public:
  TokenRows(const Batch& a, const Batch& b);

  const RowOrder& order() const { return order_; }
  size_t tokens() const { return skipped_.size(); }

  /// Returns the rows of one token below each other; nothing if a side has
  /// none, or if widths differ.
  std::optional<Pair> Of(const OperationKey& key,
                         const std::string& tensor) const;
  /// Returns a parameter or state of both sides.
  std::optional<Pair> Shared(const OperationKey& key,
                             const std::string& tensor) const;

  /// Matches the rows of each expert by what they hold. Returns how many have
  /// no like on the other side.
  size_t MatchExperts(const OperationKey& key);
  /// Rows with the same bits, as two tokens of one word may have, were matched
  /// in any order. Matches them once more by the gradients of their results.
  void MatchGradients();
  /// Compares which experts tokens chose. Tokens that chose others are skipped
  /// from here on. Returns their number; nothing if not all tokens chose.
  std::optional<size_t> CompareChoices(const OperationKey& key);

  /// Notes that a tensor has the rows that experts are given.
  void SetSource(const OperationKey& key, const std::string& tensor) {
    source_ = {key, tensor};
  }
  /// Returns which rows of a tensor do not count: those of tokens that chose
  /// other experts. Rows of experts belong to the tokens of the last source.
  std::vector<bool> SkippedOf(const OperationKey& key, const Pair& pair) const;
  /// Returns how many tokens, and slots of both sides, were routed otherwise.
  size_t flipped() const;
  size_t flipped_slots() const { return flipped_slots_; }

 private:
  void FindSource(const OperationKey& key);
  std::vector<bool> SkippedRowsOf(const OperationKey& key) const;

  const Batch& a_;
  const Batch& b_;
  RowOrder order_;
  std::vector<bool> skipped_;  ///< by A's row
  size_t flipped_slots_ = 0;
  std::pair<OperationKey, std::string> source_ = {};
  struct Source {
    OperationKey key = {};  ///< has the tokens as `tensor`
    std::string tensor = {};
    OperationKey experts = {};  ///< reads them
  };
  std::map<OperationKey, Source> source_of_ = {};
  OperationKey last_experts_ = {};
  OperationKey experts_ = {};  ///< whose rows are matched
  std::vector<size_t> rows_of_a_ = {};
  std::vector<size_t> rows_of_b_ = {};
};

}  // namespace isoloss::layouts
