// Where scales come from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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
  /// What Scaling::of_tensor made of it.
  Scale scale = {};
};

/// Registered in scalings.def; one file each, which defines kScaling_<name>.
struct Scaling {
  std::string_view name;
  /// Reads the amax of steps before, which somebody must keep.
  bool reads_history;
  /// `amax`: bits of the cell's largest magnitude, finite.
  Scale (*of_cell)(const Quantization& quantization, uint32_t amax,
                   const TensorAmax& tensor);
  /// A second scale, which all cells share. Products are multiplied by what it
  /// decodes to. Null: none.
  Scale (*of_tensor)(const Quantization& quantization,
                     const TensorAmax& tensor);
  std::string_view source;
};

/// All registered scalings, in the order of scalings.def.
std::span<const Scaling* const> AllScalings();

/// Errors   ConfigError that lists the registered names.
const Scaling& ScalingByName(std::string_view name);

/// Fills in amax.scale.
void ScaleTensor(const Quantization& quantization, TensorAmax& amax);

/// The scale of elements of which the largest magnitude has the finite bits
/// `amax`.
Scale ScaleOfAmax(const Quantization& quantization, uint32_t amax);

/// The scale of a cell in which a NaN or an infinity decides.
Scale NanScale(const Quantization& quantization);
Scale InfinityScale(const Quantization& quantization);

}  // namespace isoloss::formats
