#include "isoloss/optim/adamw.h"

#include <cmath>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::optim {
namespace {

void CheckBeta(const char* name, double beta) {
  if (!(beta >= 0 && beta < 1)) {
    ThrowError(ErrorKind::kConfig,
               "AdamW: {} is {}, but must lie in [0, 1). The usual values are "
               "0.9 and 0.95.",
               name, beta);
  }
}

void CheckNotNegative(const char* name, double value) {
  if (!(value >= 0 && std::isfinite(value))) {
    ThrowError(ErrorKind::kConfig,
               "AdamW: {} is {}, but must be finite and not negative. Choose "
               "another value.",
               name, value);
  }
}

std::span<float> All(Matrix<float>& matrix) {
  return {matrix.data(), matrix.size()};
}

}  // namespace

AdamW::AdamW(const AdamWConfig& config, std::vector<Tensor> tensors)
    : config_(config), tensors_(std::move(tensors)) {
  CheckBeta("beta1", config.beta1);
  CheckBeta("beta2", config.beta2);
  CheckNotNegative("eps", config.eps);
  CheckNotNegative("weight_decay", config.weight_decay);
  for (const Tensor& tensor : tensors_) {
    const size_t size = tensor.parameter.size();
    if (tensor.gradient.size() != size) {
      ThrowError(ErrorKind::kShape,
                 "AdamW: a gradient has {} values, but its parameter has {}. "
                 "Pass the gradient of the same tensor.",
                 tensor.gradient.size(), size);
    }
    first_moments_.emplace_back(1, size);
    second_moments_.emplace_back(1, size);
  }
}

void AdamW::Step(double lr, double grad_scale, ThreadTeam& team) {
  beta1_power_ *= config_.beta1;
  beta2_power_ *= config_.beta2;
  const kernels::AdamWScalars scalars = {
      .decay = static_cast<float>(1.0 - lr * config_.weight_decay),
      .beta1 = static_cast<float>(config_.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - config_.beta1),
      .beta2 = static_cast<float>(config_.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - config_.beta2),
      .step_size = static_cast<float>(lr / (1.0 - beta1_power_)),
      .bias2_sqrt = static_cast<float>(std::sqrt(1.0 - beta2_power_)),
      .eps = static_cast<float>(config_.eps),
      .grad_scale = static_cast<float>(grad_scale),
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    kernels::AdamWUpdate(tensors_[i].parameter, All(first_moments_[i]),
                         All(second_moments_[i]), tensors_[i].gradient, scalars,
                         team);
  }
}

}  // namespace isoloss::optim
