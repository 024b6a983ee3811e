// Reads from /recipe, for the rules of relations.h, how a log's quantised
// tensors are scaled.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Describes the scales of one operand; MX scales are assumed if nothing is
/// known of it.
struct OperandScales {
  bool e8m0 = true;    ///< bytes, which the histogram counts
  bool none = false;   ///< elements are casts
  bool blocks = true;  ///< one scale for 32 elements along the contraction
  bool transformed = false;  ///< statistics are of other elements

  /// Reads a description in words, such as "e4m3·rceil". Words after a space
  /// tell how the operand was made.
  static OperandScales Of(std::string_view description);

  bool operator==(const OperandScales&) const = default;
};

/// Returns the scales that a recipe gives each tensor of /tensors, along rows
/// and down columns.
std::vector<std::array<OperandScales, 2>> OperandScalesOf(
    const RunLog& log, const RecipeColumns& recipe);

}  // namespace isoloss::runlog
