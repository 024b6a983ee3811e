// Holds a scale, and what scales are computed from.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/formats/quantization.h"

namespace isoloss::formats {

/// Is the scale of the elements of one cell.
struct Scale {
  float encode = 1;  ///< elements are multiplied by it before they are rounded
  float decode = 1;  ///< what a code's value is multiplied by
  uint8_t byte = 0;  ///< as stored, of E8M0 and E4M3
};

/// Holds what is known of a tensor besides its cells. A tensor is the rows that
/// a scale may depend on: those of one sequence, of one expert's dispatch unit
/// or of one weight matrix.
struct TensorAmax {
  /// These are the bits of the largest magnitude of all cells, without NaNs.
  /// Cells with an infinity count under kTe; they do not count under kBlockNan,
  /// which makes them NaN.
  uint32_t current = 0;
  /// This is the largest magnitude of the earlier steps, or nullopt if there
  /// were none.
  std::optional<float> history = {};
  /// All cells share this scale under kTwoLevel.
  Scale scale = {};
};

}  // namespace isoloss::formats
