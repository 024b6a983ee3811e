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

AdamW::AdamW(const AdamWConfig& config, std::vector<Tensor> tensors,
             Memory& memory)
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
    first_moments_.emplace_back(memory).Resize(1, size);
    second_moments_.emplace_back(memory).Resize(1, size);
  }
}

void AdamW::Restore(int64_t steps) {
  if (steps < 0 || steps > kMaxSteps) {
    ThrowError(ErrorKind::kFormat,
               "AdamW: {} steps are to have been made, but they must lie in "
               "[0, {}]. Use another checkpoint.",
               steps, kMaxSteps);
  }
  steps_ = steps;
  beta1_power_ = 1;
  beta2_power_ = 1;
  // pow would give another last bit. Powers reach a fixed point in the end.
  for (int64_t t = 0; t < steps; ++t) {
    const double next1 = beta1_power_ * config_.beta1;
    const double next2 = beta2_power_ * config_.beta2;
    if (next1 == beta1_power_ && next2 == beta2_power_) break;
    beta1_power_ = next1;
    beta2_power_ = next2;
  }
}

void AdamW::Step(double lr, double grad_scale, Executor& executor,
                 std::span<UpdateSquares> squares) {
  Run(lr, grad_scale, executor, squares, /*keep_parameters=*/false);
}

void AdamW::StepKeepingParameters(double lr, double grad_scale,
                                  Executor& executor,
                                  std::span<UpdateSquares> squares) {
  ISOLOSS_ASSERT(!squares.empty() || tensors_.empty());
  Run(lr, grad_scale, executor, squares, /*keep_parameters=*/true);
}

void AdamW::Run(double lr, double grad_scale, Executor& executor,
                std::span<UpdateSquares> squares, bool keep_parameters) {
  if (!squares.empty() && squares.size() != tensors_.size()) {
    ThrowError(ErrorKind::kShape,
               "AdamW: {} sums of squares are wanted, but there are {} "
               "tensors. Pass one for each, or none.",
               squares.size(), tensors_.size());
  }
  ++steps_;
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
  std::vector<kernels::MeasuredAdamW> measured;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const std::span<float> first_moment = All(first_moments_[i]);
    const std::span<float> second_moment = All(second_moments_[i]);
    if (squares.empty()) {
      kernels::AdamWUpdate(tensor.parameter, first_moment, second_moment,
                           tensor.gradient, scalars, executor);
      continue;
    }
    const size_t leaves = kernels::SquaresLeaves(tensor.parameter.size());
    squares[i].parameter.resize(leaves);
    squares[i].update.resize(leaves);
    measured.push_back({tensor.parameter, first_moment, second_moment,
                        tensor.gradient, scalars, keep_parameters,
                        squares[i].parameter, squares[i].update});
  }
  kernels::MeasuredAdamWUpdate(measured, executor);
}

}  // namespace isoloss::optim
