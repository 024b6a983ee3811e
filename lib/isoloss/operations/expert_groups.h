// Routers that choose experts from a few groups only, as DeepSeek-V3's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/operations/check.h"

namespace isoloss::operations {

/// Attributes `groups` and `limited_groups` of a router: its experts lie in so
/// many groups of equal size, in their order, and a token's are chosen from the
/// `limited_groups` whose two largest sums of score and bias are largest
/// together.
class ExpertGroups {
 public:
  /// Errors   FormatError if groups do not divide the experts, or are fewer
  ///          than those that a token may choose from.
  explicit ExpertGroups(const OperationCase& given);

  bool limits() const { return limited_ < groups_; }

  /// Whether a token may choose each expert. Of groups that lie at the limit
  /// within the roundings of their score, those that it chose from are open.
  std::vector<bool> Open(std::span<const double> sums,
                         std::span<const int64_t> chosen) const;

 private:
  size_t groups_ = 1;
  size_t limited_ = 1;
};

}  // namespace isoloss::operations
