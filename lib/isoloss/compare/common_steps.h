// Rows of two logs that belong to the same step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace isoloss::compare {

/// The row of `step` in an ascending column; empty if it has none.
std::optional<size_t> RowOfStep(std::span<const int64_t> steps, int64_t step);

/// Steps that both ascending columns have, ascending.
std::vector<int64_t> CommonSteps(std::span<const int64_t> a,
                                 std::span<const int64_t> b);

/// A name that two lists share, and its place in each.
struct SharedName {
  size_t a = 0;
  size_t b = 0;
};

/// Two lists of names, matched. Of a name that a list repeats its first place
/// counts.
struct MatchedNames {
  std::vector<SharedName> shared;  ///< in the order of `a`
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
};
MatchedNames MatchNames(std::span<const std::string> a,
                        std::span<const std::string> b);

}  // namespace isoloss::compare
