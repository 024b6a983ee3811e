// The element formats of MX blocks that packed kernels take.
#pragma once

#include <vector>

#include "isoloss/formats/format.h"

namespace isoloss::formats {

/// The registered formats with a sign bit in at most 8 bits.
inline std::vector<const Format*> MxElements() {
  std::vector<const Format*> elements;
  for (const Format* format : AllFormats()) {
    if (format->is_small_float()) elements.push_back(format);
  }
  return elements;
}

}  // namespace isoloss::formats
