// What /recipe says of the scales of a log's quantised tensors, for rules.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Of one operand. Those of MX if nothing is known of it.
struct OperandScales {
  bool e8m0 = true;    ///< bytes, which the histogram counts
  bool none = false;   ///< elements are casts
  bool blocks = true;  ///< one scale for 32 elements along the contraction
  bool transformed = false;  ///< statistics are of other elements

  /// Of a description in words: "e4m3·rceil". What follows a space is how the
  /// operand came to be.
  static OperandScales Of(std::string_view description);

  bool operator==(const OperandScales&) const = default;
};

/// For each tensor of /tensors, along rows and down columns.
std::vector<std::array<OperandScales, 2>> OperandScalesOf(const RunLog& log);

}  // namespace isoloss::runlog
