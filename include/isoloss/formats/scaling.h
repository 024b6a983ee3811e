// Scales from largest magnitudes.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/formats/quantization.h"

namespace isoloss::formats {

/// The scale of the elements of one cell.
struct Scale {
  float encode = 1;  ///< elements are multiplied by it before they are rounded
  float decode = 1;  ///< what a code's value is multiplied by
  uint8_t byte = 0;  ///< as stored, of E8M0 and E4M3
};

/// What is known of a tensor besides its cells: the rows that a scale may
/// depend on, which are those of one sequence, of one expert's dispatch unit or
/// of one weight matrix.
struct TensorAmax {
  /// Bits of the largest magnitude of all cells, NaNs aside. Cells with an
  /// infinity count under kTe, and not under kBlockNan, which makes them NaN.
  uint32_t current = 0;
  /// Of the steps before; none: there were none.
  std::optional<float> history = {};
  /// The scale that all cells share under kTwoLevel: of ScaleTensor.
  Scale scale = {};
};

/// Fills in amax.scale.
void ScaleTensor(const Quantization& quantization, TensorAmax& amax);

/// The scale of a cell whose largest magnitude has the finite bits `amax`.
Scale ScaleOfFiniteCell(const Quantization& quantization, uint32_t amax,
                        const TensorAmax& tensor);

/// The scale of a cell in which a NaN or an infinity decides.
Scale NanScale(const Quantization& quantization);
Scale InfinityScale(const Quantization& quantization);

}  // namespace isoloss::formats
