// What the optimizer sees of a model.
#pragma once

#include <span>

namespace isoloss::optim {

/// The values of one trained tensor and their gradient, of equal length. The
/// memory belongs to the model.
struct Tensor {
  std::span<float> parameter;
  std::span<float> gradient;
};

}  // namespace isoloss::optim
