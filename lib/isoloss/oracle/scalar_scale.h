// Computes scales by the oracle's own text.
#pragma once

#include <optional>

#include "isoloss/formats/quantization.h"

namespace isoloss::oracle {

/// The elements of a cell have these two factors.
struct ScalarScale {
  float encode = 1.0f;  ///< factor of elements before the cast
  float decode = 1.0f;  ///< factor of codes
};

/// A scale may depend on these besides its own cell.
struct TensorMagnitudes {
  /// The largest magnitude of all cells that have no infinity; NaN is skipped.
  float current = 0.0f;
  std::optional<float> history;  ///< largest of earlier steps, if any
};

/// Returns the scale of a cell. `amax` is its largest magnitude; it is infinite
/// or NaN if an infinity or a NaN decides.
/// Errors   ConfigError for a scaling that the oracle does not know.
/// Source   docs/numerics.md, sections 4 to 6 and 13.
ScalarScale ScaleOfCell(const formats::Quantization& quantization, float amax,
                        const TensorMagnitudes& tensor);

/// Returns the factor of every code times scale of the tensor.
float ScaleOfTensor(const formats::Quantization& quantization,
                    const TensorMagnitudes& tensor);

}  // namespace isoloss::oracle
