// Defines the optimizer's view of a model's tensors.
#pragma once

#include <span>

namespace isoloss::optim {

/// A trained tensor has values and their gradient, of equal length. The memory
/// belongs to the model.
struct Tensor {
  std::span<float> parameter;
  std::span<float> gradient;
};

}  // namespace isoloss::optim
