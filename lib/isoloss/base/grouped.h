// Writes numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace isoloss {

/// Returns "1,048,576" for a count, which is not negative.
inline std::string Grouped(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace isoloss
