// Finds the named numbers of a line that a program printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "isoloss/foreign/text.h"

namespace isoloss::foreign {

/// A number with the words before it: "loss: 4.5", "lr=1e-5", "Loss 4.5 (4.6)",
/// "Epoch [3/90]", "Iter(train) [ 10/500]", "10/500 [00:12<1:00, ...".
struct LineItem {
  std::string_view name;  ///< "" if none is there
  /// Empty where a loss or a phase is due: "loss: N/A", "split: val".
  std::optional<Written> number;
  std::string_view word;  ///< that begins with the number
  bool is_count = false;  ///< a whole number, or one of "3/90"
  int64_t total = 0;      ///< of "3/90"; 0: not told
  bool has_total = false;
  bool has_sign = false;  ///< a colon, an equals sign or a bracket before it
  bool percent = false;
  bool has_second = false;  ///< another number follows in parentheses
  /// Stands between the item before, or the line's beginning, and the name.
  std::string_view gap;
  size_t begin = 0;  ///< of the name in the line, or of the number
  size_t end = 0;    ///< behind the number, its total and its unit
};

/// Returns the items of a line in their order. Numbers of clocks and dates, and
/// those in parentheses behind another number, are none. A suffix of thousands
/// (12.3k, 1.5M) is multiplied out, but that of a loss, which has no unit.
std::vector<LineItem> ItemsOf(std::string_view line);

}  // namespace isoloss::foreign
