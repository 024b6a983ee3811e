// Handles routers that choose experts from a few groups, as DeepSeek-V3 does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/operations/check.h"

namespace isoloss::operations {

/// The groups follow from the attributes `groups` and `limited_groups` of a
/// router. Its experts lie in that number of groups of equal size, in their
/// order. A token's experts are from the `limited_groups` groups whose two
/// largest sums of score and bias are largest together.
class ExpertGroups {
 public:
  /// Errors   FormatError if groups do not divide the experts, or are fewer
  ///          than those that a token may choose from.
  explicit ExpertGroups(const OperationCase& given);

  bool limits() const { return limited_ < groups_; }

  /// Returns whether a token may choose each expert. If groups are at the
  /// limit, within the roundings of their score, those from which it chose are
  /// open.
  std::vector<bool> Open(std::span<const double> sums,
                         std::span<const int64_t> chosen) const;

 private:
  size_t groups_ = 1;
  size_t limited_ = 1;
};

}  // namespace isoloss::operations
