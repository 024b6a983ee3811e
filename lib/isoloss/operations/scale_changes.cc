#include "isoloss/operations/scale_changes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace isoloss::operations {

using formats::Quantization;
using formats::ScaleFormat;
using oracle::ScalarScale;
using oracle::ScalarTensor;

bool Recast(ScalarTensor& tensor, const Quantization& quantization) {
  const oracle::ScalarCoder coder(quantization);
  return Recast(tensor, [&](float element, const ScalarScale& scale, float) {
    return coder.Code(element, scale, 0);
  });
}

std::vector<float> LargestOfCells(const ScalarTensor& tensor) {
  return LargestOfCells(tensor, [](float, size_t, size_t) { return true; });
}

float LargestOf(const std::vector<float>& largest) {
  float most = 0.0f;
  for (const float amax : largest) {
    if (std::isfinite(amax)) most = std::max(most, amax);
  }
  return most;
}

void SetScale(float decode, float of_tensor, ScalarScale& scale) {
  scale.decode = decode;
  scale.encode =
      std::fmin(1.0f / (decode * of_tensor), std::numeric_limits<float>::max());
}

bool FollowLargest(const std::vector<float>& largest, float of_tensor,
                   const Quantization& quantization, ScalarTensor& tensor) {
  if (quantization.reads_history()) return false;
  const oracle::TensorMagnitudes magnitudes = {of_tensor, std::nullopt};
  for (size_t i = 0; i < largest.size(); ++i) {
    tensor.scales[i] =
        oracle::ScaleOfCell(quantization, largest[i], magnitudes);
  }
  tensor.tensor_scale = oracle::ScaleOfTensor(quantization, magnitudes);
  return Recast(tensor, quantization);
}

bool TakeScales(const std::vector<ScalarScale>& scales, float of_tensor,
                const Quantization& quantization, ScalarTensor& tensor) {
  if (scales.size() != tensor.scales.size()) return false;
  tensor.scales = scales;
  tensor.tensor_scale = of_tensor;
  return Recast(tensor, quantization);
}

float InScaleFormat(const Quantization& quantization, float scale) {
  return quantization.scale_format == ScaleFormat::kE4m3
             ? oracle::NearestE4m3(scale)
             : scale;
}

float NextE4m3(float number, int units) {
  // Half of the numbers' distance below the number decides in a tie.
  constexpr int kLeast = -6;
  constexpr int kBits = 3;
  const int exponent = std::max(std::ilogb(number), kLeast);
  const float unit = std::ldexp(1.0f, exponent - kBits);
  const bool is_power = number == std::ldexp(1.0f, exponent);
  const float below = is_power && exponent > kLeast ? unit / 2 : unit;
  return oracle::NearestE4m3(units > 0 ? number + unit
                                       : std::fmax(number - below, 0.0f));
}

}  // namespace isoloss::operations
