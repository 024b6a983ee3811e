// The oracle's own account of where scales come from.
#pragma once

#include <optional>

#include "isoloss/formats/quantization.h"

namespace isoloss::oracle {

/// Of the elements that share a scale.
struct ScalarScale {
  float encode = 1.0f;  ///< elements are multiplied by it before they are cast
  float decode = 1.0f;  ///< what codes are multiplied by
};

/// What a scale may depend on besides its own cell.
struct TensorMagnitudes {
  /// The largest of all cells that have no infinity; NaN counts as none.
  float current = 0.0f;
  std::optional<float> history;  ///< of steps before; none: there were none
};

/// Of a cell. `amax`: its largest magnitude, infinite or NaN if an infinity or
/// a NaN decides.
/// Errors   ConfigError for a scaling that the oracle does not know.
/// Source   docs/numerics.md, sections 4 to 6 and 13.
ScalarScale ScaleOfCell(const formats::Quantization& quantization, float amax,
                        const TensorMagnitudes& tensor);

/// What every product of the tensor is multiplied by.
float ScaleOfTensor(const formats::Quantization& quantization,
                    const TensorMagnitudes& tensor);

}  // namespace isoloss::oracle
