// Changes scales and codes of quantised tensors, for the catalogue of mistakes.
#pragma once

#include <cstddef>
#include <vector>

#include "isoloss/formats/quantization.h"
#include "isoloss/operations/product.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/scalar_scale.h"

namespace isoloss::operations {

/// Casts each element anew, by cast(element, scale, code). Returns whether any
/// code changed.
template <typename Cast>
bool Recast(oracle::ScalarTensor& tensor, const Cast& cast) {
  bool changed = false;
  for (size_t r = 0; r < tensor.codes.rows(); ++r) {
    for (size_t c = 0; c < tensor.codes.cols(); ++c) {
      const float code =
          cast(tensor.elements(r, c), tensor.ScaleAt(r, c), tensor.codes(r, c));
      changed = changed || !(code == tensor.codes(r, c));
      tensor.codes(r, c) = code;
    }
  }
  return changed;
}

bool Recast(oracle::ScalarTensor& tensor,
            const formats::Quantization& quantization);

/// Returns the largest magnitudes of the elements that keep(element, row,
/// column) chooses.
template <typename Keep>
std::vector<float> LargestOfCells(const oracle::ScalarTensor& tensor,
                                  const Keep& keep) {
  const size_t across =
      (tensor.codes.cols() + tensor.cell_cols - 1) / tensor.cell_cols;
  std::vector<float> largest(tensor.scales.size(), 0.0f);
  for (size_t r = 0; r < tensor.elements.rows(); ++r) {
    for (size_t c = 0; c < tensor.elements.cols(); ++c) {
      const float element = tensor.elements(r, c);
      if (!keep(element, r, c)) continue;
      float& amax =
          largest[r / tensor.cell_rows * across + c / tensor.cell_cols];
      amax = std::max(amax, std::fabs(element));
    }
  }
  return largest;
}

std::vector<float> LargestOfCells(const oracle::ScalarTensor& tensor);
/// Returns the largest of those that are finite.
float LargestOf(const std::vector<float>& largest);

/// Gives a cell another scale; `of_tensor` is the tensor's.
void SetScale(float decode, float of_tensor, oracle::ScalarScale& scale);
/// Gives cells the scales of these largest magnitudes, under a tensor's amax.
/// Returns false if the quantisation follows earlier steps.
bool FollowLargest(const std::vector<float>& largest, float of_tensor,
                   const formats::Quantization& quantization,
                   oracle::ScalarTensor& tensor);
/// Takes scales of another tensor of equal size, and the codes that they give.
bool TakeScales(const std::vector<oracle::ScalarScale>& scales, float of_tensor,
                const formats::Quantization& quantization,
                oracle::ScalarTensor& tensor);

/// Returns the nearest scale that the format has, if it is E4M3.
float InScaleFormat(const formats::Quantization& quantization, float scale);
/// Returns the E4M3 number so many units after a positive one.
float NextE4m3(float number, int units);

/// Lets delayed scaling follow amax(), of a history. Returns false if there is
/// none, or the same maximum.
template <typename Amax>
bool OtherHistory(Side& side, const Amax& amax) {
  if (!side.quantization || !side.quantization->reads_history() ||
      side.amax_history.empty()) {
    return false;
  }
  const std::optional<float> now = side.state.history;
  side.SetHistory(amax());
  return side.state.history != now;
}

}  // namespace isoloss::operations
